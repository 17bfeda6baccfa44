# SPDX-License-Identifier: Apache-2.0
"""`alibi_test`: a Catch2 test beside its sources."""

def alibi_test(name, srcs, deps = [], size = "medium", **kwargs):
    """A cc_test with Catch2, its main and our per-case result listener.

    Args:
      name: target name, by convention the source's name without `.cc`.
      srcs: sources; they include <catch2/catch.hpp> and define no main.
      deps: what is under test.
      size: Bazel's size; decides the timeout (medium: 300 s).
      **kwargs: passed on to cc_test, for instance
        `data = ["//frobos:x.elf"], env = {"GUEST_IMAGE": "$(rootpath //frobos:x.elf)"}`.
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs,
        deps = deps + ["//testsuite:catch_main", "@catch2"],
        **kwargs
    )
