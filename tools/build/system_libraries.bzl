# SPDX-License-Identifier: Apache-2.0
"""The system libraries, each as one small repository: `@zydis`, `@asmjit`, `@capstone`, ...

A repository checks that the library's headers are installed and says which package to install
when they are not; a missing library is then one clear line instead of a compiler error.
"""

# One row per library. `headers` are searched in the compiler's own include directories, so the
# generated target needs no include path.
_LIBRARIES = {
    "asmjit": struct(
        packages = ["libasmjit-dev"],
        headers = ["asmjit/asmjit.h"],
        # Debian ships the static library only; -lrt for the dual mappings it can make.
        defines = ["ASMJIT_STATIC"],
        linkopts = ["-lasmjit", "-lrt", "-pthread"],
    ),
    "capstone": struct(
        packages = ["libcapstone-dev"],
        headers = ["capstone/capstone.h"],
        defines = [],
        linkopts = ["-lcapstone"],
    ),
    "catch2": struct(
        packages = ["catch2"],
        headers = ["catch2/catch.hpp"],
        # Catch2's own SIGSEGV handler would take the faults our runtime lives on.
        defines = ["CATCH_CONFIG_NO_POSIX_SIGNALS"],
        linkopts = [],
    ),
    "cli11": struct(
        packages = ["libcli11-dev"],
        headers = ["CLI/CLI.hpp"],
        defines = [],
        linkopts = [],
    ),
    "fmt": struct(
        packages = ["libfmt-dev"],
        headers = ["fmt/format.h"],
        defines = [],
        linkopts = ["-lfmt"],
    ),
    "nbd": struct(
        packages = ["libnbd-dev"],
        headers = ["libnbd.h"],
        defines = [],
        linkopts = ["-lnbd"],
    ),
    # Programs that `alibi bench linux` measures, and what they need when linked statically.
    "lua": struct(
        packages = ["liblua5.4-dev"],
        headers = ["lua5.4/lua.h"],
        defines = [],
        linkopts = ["-llua5.4", "-lm", "-ldl"],
    ),
    "nlohmann_json": struct(
        packages = ["nlohmann-json3-dev"],
        headers = ["nlohmann/json.hpp"],
        defines = [],
        linkopts = [],
    ),
    "sqlite": struct(
        packages = ["libsqlite3-dev"],
        headers = ["sqlite3.h"],
        defines = [],
        linkopts = ["-lsqlite3", "-lm", "-ldl", "-pthread"],
    ),
    "tcc": struct(
        packages = ["libtcc-dev"],
        headers = ["libtcc.h"],
        defines = [],
        linkopts = ["-ltcc", "-ldl"],
    ),
    "slirp": struct(
        packages = ["libslirp-dev"],
        headers = ["slirp/libslirp.h"],
        defines = [],
        linkopts = ["-lslirp"],
    ),
    "tomlplusplus": struct(
        packages = ["libtomlplusplus-dev"],
        headers = ["toml++/toml.h"],
        # Wrong files are results here, not exceptions.
        defines = ["TOML_EXCEPTIONS=0"],
        linkopts = [],
    ),
    "xxhash": struct(
        packages = ["libxxhash-dev"],
        headers = ["xxhash.h"],
        defines = [],
        linkopts = ["-lxxhash"],
    ),
    "zlib": struct(
        packages = ["zlib1g-dev"],
        headers = ["zlib.h"],
        defines = [],
        linkopts = ["-lz"],
    ),
    "zydis": struct(
        packages = ["libzydis-dev", "libzycore-dev"],
        headers = ["Zydis/Zydis.h", "Zycore/Zycore.h"],
        defines = [],
        linkopts = ["-lZydis", "-lZycore"],
    ),
}

_INCLUDE_DIRECTORIES = [
    "/usr/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/local/include",
]

_BUILD = """\
cc_library(
    name = "{name}",
    defines = {defines},
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _has_header(rctx, header):
    for directory in _INCLUDE_DIRECTORIES:
        if rctx.path(directory + "/" + header).exists:
            return True
    return False

def _system_library_impl(rctx):
    for header in rctx.attr.headers:
        if not _has_header(rctx, header):
            fail("%s: <%s> is not installed; run: apt-get install %s" %
                 (rctx.name, header, " ".join(rctx.attr.packages)))
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)
    rctx.file("BUILD", _BUILD.format(
        name = rctx.name,
        defines = repr(rctx.attr.defines),
        linkopts = repr(rctx.attr.linkopts),
    ))

_system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "packages": attr.string_list(mandatory = True),
        "headers": attr.string_list(mandatory = True),
        "defines": attr.string_list(),
        "linkopts": attr.string_list(),
    },
    # Looked at anew by every Bazel server: an installed package is noticed without `clean`.
    local = True,
)

def system_libraries():
    """Declares every system library as a repository of the same name."""
    for name, library in _LIBRARIES.items():
        _system_library(
            name = name,
            packages = library.packages,
            headers = library.headers,
            defines = library.defines,
            linkopts = library.linkopts,
        )
