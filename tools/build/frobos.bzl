# SPDX-License-Identifier: Apache-2.0
"""Rules that build guest code: `frobos_library` and `frobos_kernel`.

Only gcc, ld and objcopy are taken from the C++ toolchain. The flags are the guest's own: no host
copt and no sanitizer reaches a kernel, and none is needed for `--config=asan`.

    frobos_library(name = "lib", srcs = [...], hdrs = [...], copts = [...])
    frobos_kernel(name = "hello", srcs = ["hello.cc"], deps = [":lib"], linker_script = "link.ld")

An object's path keeps its source's path (`_guest/lib/frobos/compute/sort.c.o`), so a linker
script can place whole folders: `*/compute/*.o(.text .text.*)`.

`:hello` then has two outputs: `hello.elf`, a 32-bit multiboot1 image for our loader and for
`qemu-system-x86_64 -kernel`, and `hello.elf64`, the same code with symbols and line numbers for a
debugger. `//frobos:hello.elf` names the image alone.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

FrobosInfo = provider(
    doc = "Guest objects and headers.",
    fields = {
        "objects": "depset of object files",
        "headers": "depset of header files and other files that sources include",
    },
)

_COMMON_FLAGS = [
    "-O2",
    "-g1",
    "-Wall",
    "-Wextra",
    "-ffreestanding",
    "-fno-pic",
    "-fno-pie",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fcf-protection=none",
    "-fno-omit-frame-pointer",
    "-fno-common",
]

_FLAGS_BY_BITS = {
    # The kernel has no red zone: an interrupt would write over it.
    64: ["-m64", "-mno-red-zone"],
    # As 32-bit distributions compile: CMOV, x87 arithmetic.
    32: ["-m32", "-march=i686", "-mpreferred-stack-boundary=4"],
}

_CXX_FLAGS = [
    "-std=c++20",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-use-cxa-atexit",
]

_C_FLAGS = ["-std=c11"]

_LANGUAGE_FLAGS = {
    "S": ["-x", "assembler-with-cpp", "-D__ASSEMBLY__=1"],
    "c": ["-x", "c"] + _C_FLAGS,
    "cc": ["-x", "c++"] + _CXX_FLAGS,
}

# gcc runs its parts (cc1, as) by a look-up in PATH.
_ENV = {
    "PATH": "/usr/bin:/bin",
    # Debug information names no sandbox folder, so that equal sources make equal images.
    "PWD": "/proc/self/cwd",
}

_SOURCE_ATTRS = {
    "srcs": attr.label_list(allow_files = [".S", ".c", ".cc"]),
    "hdrs": attr.label_list(
        allow_files = True,
        doc = "Headers, .inc tables and binary files that sources include.",
    ),
    "deps": attr.label_list(providers = [FrobosInfo]),
    "copts": attr.string_list(doc = "Added after the common flags, so they win."),
    "simd": attr.bool(
        doc = "Let the compiler use x87, SSE and AVX registers: for user programs and vector " +
              "tests only, because nothing saves these registers across an exception.",
    ),
    "bits": attr.int(default = 64, values = [32, 64]),
    "defines": attr.string_list(doc = "NAME or NAME=VALUE."),
    "mcmodel": attr.string(
        default = "small",
        values = ["small", "kernel", "medium", "large"],
    ),
    "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
}

def _compile(ctx, cc, headers):
    objects = []
    for source in ctx.files.srcs:
        # The whole path, so that lib/a.S and tests/a.cc of one target do not meet.
        output = ctx.actions.declare_file("_guest/%s/%s.o" % (ctx.label.name, source.short_path))
        arguments = ctx.actions.args()
        arguments.add_all(_COMMON_FLAGS)
        arguments.add_all(_FLAGS_BY_BITS[ctx.attr.bits])
        if ctx.attr.bits == 64:
            arguments.add("-mcmodel=" + ctx.attr.mcmodel)
        if not ctx.attr.simd:
            arguments.add("-mgeneral-regs-only")
        arguments.add_all(_LANGUAGE_FLAGS[source.extension])
        arguments.add_all(["-iquote", ".", "-I", ".", "-I", ctx.bin_dir.path])
        arguments.add_all(ctx.attr.defines, format_each = "-D%s")
        arguments.add_all(ctx.attr.copts)
        arguments.add("-c")
        arguments.add(source)
        arguments.add("-o", output)
        ctx.actions.run(
            executable = cc.compiler_executable,
            arguments = [arguments],
            inputs = depset([source], transitive = [headers, cc.all_files]),
            outputs = [output],
            env = _ENV,
            mnemonic = "GuestCompile",
            progress_message = "Compiling guest code %s" % source.short_path,
        )
        objects.append(output)
    return objects

def _collect(ctx, cc):
    headers = depset(
        ctx.files.hdrs,
        transitive = [dep[FrobosInfo].headers for dep in ctx.attr.deps],
    )
    return FrobosInfo(
        # Own objects first: the linker keeps their order within a section.
        objects = depset(
            _compile(ctx, cc, headers),
            transitive = [dep[FrobosInfo].objects for dep in ctx.attr.deps],
            order = "preorder",
        ),
        headers = headers,
    )

def _frobos_library_impl(ctx):
    info = _collect(ctx, find_cpp_toolchain(ctx))
    return [info, DefaultInfo(files = info.objects)]

frobos_library = rule(
    implementation = _frobos_library_impl,
    doc = "Guest sources compiled once and linked into every kernel that depends on them.",
    attrs = _SOURCE_ATTRS,
)

# What has images among its data has them among its runfiles, through libraries, too.
def _as_data(ctx, images):
    return DefaultInfo(files = depset(images), runfiles = ctx.runfiles(files = images))

def _frobos_image_impl(ctx):
    cc = find_cpp_toolchain(ctx)
    objects = _collect(ctx, cc).objects

    # A 32-bit image is linked as what it is; a 64-bit one is wrapped after linking.
    linked = ctx.outputs.elf64 if ctx.attr.bits == 64 else ctx.outputs.elf32
    link = ctx.actions.args()
    link.add_all(["-m", "elf_x86_64" if ctx.attr.bits == 64 else "elf_i386", "-static", "-nostdlib", "--no-dynamic-linker"])
    link.add_all(["-z", "max-page-size=0x1000", "-z", "noexecstack", "--build-id=none"])
    # A kernel's data segment may be executable on purpose: tests map pages as they like.
    link.add("--no-warn-rwx-segments")
    link.add_all(ctx.attr.linkopts)
    link.add("-T", ctx.file.linker_script)
    link.add_all(objects)
    link.add("-o", linked)
    ctx.actions.run(
        executable = cc.ld_executable,
        arguments = [link],
        inputs = depset([ctx.file.linker_script], transitive = [objects, cc.all_files]),
        outputs = [linked],
        env = _ENV,
        mnemonic = "GuestLink",
        progress_message = "Linking guest kernel %s" % linked.short_path,
    )
    if ctx.attr.bits == 32:
        return [_as_data(ctx, [linked])]

    ctx.actions.run(
        executable = cc.objcopy_executable,
        arguments = [
            "--strip-debug",
            "-O",
            "elf32-i386",
            ctx.outputs.elf64.path,
            ctx.outputs.elf32.path,
        ],
        inputs = depset([ctx.outputs.elf64], transitive = [cc.all_files]),
        outputs = [ctx.outputs.elf32],
        env = _ENV,
        mnemonic = "GuestObjcopy",
        progress_message = "Making multiboot image %s" % ctx.outputs.elf32.short_path,
    )
    return [_as_data(ctx, [ctx.outputs.elf32, ctx.outputs.elf64])]

_frobos_image = rule(
    implementation = _frobos_image_impl,
    attrs = dict(
        _SOURCE_ATTRS,
        linker_script = attr.label(allow_single_file = True, mandatory = True),
        linkopts = attr.string_list(),
        elf32 = attr.output(mandatory = True),
        elf64 = attr.output(),
    ),
)

def frobos_kernel(name, linker_script, bits = 64, **kwargs):
    """A guest kernel: `<name>.elf` (multiboot1, 32-bit container) and `<name>.elf64`.

    Args:
      name: target name.
      linker_script: label of the linker script.
      bits: 64, or 32 for 32-bit code throughout (then there is no `<name>.elf64`).
      **kwargs: srcs, hdrs, deps, copts, defines, mcmodel (as in frobos_library), linkopts.
    """
    _frobos_image(
        name = name,
        linker_script = linker_script,
        elf32 = name + ".elf",
        elf64 = name + ".elf64" if bits == 64 else None,
        bits = bits,
        **kwargs
    )
