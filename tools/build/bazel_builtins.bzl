# SPDX-License-Identifier: Apache-2.0
"""Local replacements for the three repositories Bazel 4 would download.

Debian's bazel-bootstrap has no bundled copies, and its own bazel-rules-cc package does not fit
this version. The native rules are all we need, so each repository forwards to them.
"""

def _forwarding_impl(rctx):
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)
    rctx.file("BUILD", rctx.attr.build)
    for path, content in rctx.attr.files.items():
        rctx.file(path, content)

_forwarding_repository = repository_rule(
    implementation = _forwarding_impl,
    attrs = {
        "build": attr.string(),
        "files": attr.string_dict(),
    },
    local = True,
)

def _forward(rules):
    return "".join(["%s = native.%s\n" % (rule, rule) for rule in rules])

_CC_RULES = [
    "cc_binary",
    "cc_import",
    "cc_library",
    "cc_proto_library",
    "cc_test",
    "cc_toolchain",
    "cc_toolchain_suite",
    "objc_library",
]

_JAVA_RULES = [
    "java_binary",
    "java_import",
    "java_library",
    "java_plugin",
    "java_runtime",
    "java_test",
    "java_toolchain",
]

def bazel_builtin_repositories():
    """Declares @rules_cc, @rules_java and @remote_coverage_tools."""
    _forwarding_repository(
        name = "rules_cc",
        files = {
            "cc/BUILD": "",
            "cc/defs.bzl": _forward(_CC_RULES),
        },
    )
    _forwarding_repository(
        name = "rules_java",
        files = {
            "java/BUILD": "",
            "java/defs.bzl": _forward(_JAVA_RULES),
        },
    )
    _forwarding_repository(
        name = "remote_coverage_tools",
        build = """\
filegroup(
    name = "coverage_report_generator",
    srcs = [],
    visibility = ["//visibility:public"],
)
""",
    )
