"""cuda_library: CUDA twins that are built when the toolkit is there and refuse when it is not.
cuda_binary: a program that makes sense with the toolkit alone.

Example:
    cuda_library(
        name = "swiglu_cuda",
        srcs = ["swiglu_cuda.cu"],
        hdrs = ["swiglu_cuda.h"],
        cuda_deps = [":cuda_launch"],
        deps = [":cuda_support_header", ":swiglu"],
    )
"""

load("@local_cuda//:defs.bzl", "CUDA_AVAILABLE", "NVCC")

# Machine code for Hopper; PTX for every other card from sm_75 on, which its driver compiles.
_TARGETS = [
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_75,code=compute_75",
]

# Exactness: no contraction, IEEE division and square root, denormals kept
# (kernels/SPECIFICATION.md, rule 1).
_EXACT = [
    "-fmad=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "-ftz=false",
]

_HOST = "-fPIC,-Wall,-Wextra,-Werror,-Wno-missing-field-initializers,-ffp-contract=off"

def _nvcc_objects_impl(ctx):
    headers = depset(
        ctx.files.hdrs,
        transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
    )
    objects = []
    for src in ctx.files.srcs:
        out = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, src.basename[:-len(".cu")]))
        args = ctx.actions.args()
        args.add_all(["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Werror", "all-warnings"])
        args.add_all(_TARGETS + _EXACT)
        args.add_all(["-Xcompiler", _HOST, "-I.", "-I" + ctx.bin_dir.path])
        args.add_all(["-c", src.path, "-o", out.path])
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            inputs = depset([src], transitive = [headers]),
            outputs = [out],
            mnemonic = "NvccCompile",
            progress_message = "Compiling %s" % src.short_path,
            use_default_shell_env = True,
        )
        objects.append(out)
    return [DefaultInfo(files = depset(objects))]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)

def cuda_library(name, hdrs, srcs = [], host_srcs = [], private_hdrs = [], deps = [], cuda_deps = []):
    """A library whose header is always there and whose functions run or refuse.

    Args:
      name: the library; NAME_header is the header alone, for //kernels:cuda_unavailable, which
        defines every function of every such header for builds without the toolkit.
      hdrs: public headers, free of CUDA's own.
      srcs: .cu files.
      host_srcs: .cc files that use the CUDA runtime.
      private_hdrs: headers of srcs and host_srcs alone.
      deps: what the headers need: of a cuda_library its NAME_header.
      cuda_deps: what the sources need besides, other cuda_library targets for one.
          //kernels:cuda_support is always there.
    """
    native.cc_library(
        name = name + "_header",
        hdrs = hdrs,
        deps = deps,
    )
    if not CUDA_AVAILABLE:
        native.cc_library(
            name = name,
            deps = [
                name + "_header",
                "//kernels:cuda_unavailable",
            ],
        )
        return
    support = [] if name == "cuda_support" else ["//kernels:cuda_support"]
    if srcs:
        _nvcc_objects(
            name = name + "_objects",
            srcs = srcs,
            hdrs = private_hdrs,
            deps = [name + "_header"] + cuda_deps,
        )
    native.cc_library(
        name = name,
        srcs = host_srcs + private_hdrs + ([name + "_objects"] if srcs else []),
        deps = [name + "_header"] + support + cuda_deps + ["@local_cuda//:cudart"],
    )

def cuda_binary(**kwargs):
    """A cc_binary that is left out of builds without the toolkit."""
    if CUDA_AVAILABLE:
        native.cc_binary(**kwargs)
