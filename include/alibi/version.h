/* SPDX-License-Identifier: Apache-2.0 */
/* The version, for C and C++: https://semver.org. These three lines are the only place that has it;
 * the program, the package and the build files of users take it from here. While MAJOR is 0, a new
 * MINOR may break programs; alibi_version() tells the version of the library that one runs with. */
#ifndef ALIBI_INCLUDE_ALIBI_VERSION_H_
#define ALIBI_INCLUDE_ALIBI_VERSION_H_

#define ALIBI_VERSION_MAJOR 0
#define ALIBI_VERSION_MINOR 1
#define ALIBI_VERSION_PATCH 0

#define ALIBI_VERSION_TEXT_(major, minor, patch) #major "." #minor "." #patch
#define ALIBI_VERSION_TEXT(major, minor, patch) ALIBI_VERSION_TEXT_(major, minor, patch)
/* "MAJOR.MINOR.PATCH" */
#define ALIBI_VERSION \
  ALIBI_VERSION_TEXT(ALIBI_VERSION_MAJOR, ALIBI_VERSION_MINOR, ALIBI_VERSION_PATCH)

#endif /* ALIBI_INCLUDE_ALIBI_VERSION_H_ */
