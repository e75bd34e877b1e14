"""Finds the CUDA toolkit, if there is one; without it the CUDA twins are left out."""

# Where the toolkit is looked for, in order. CUDA_HOME in the environment wins; CUDA_HOME=none
# builds as if there were no toolkit.
_PLACES = ["/usr/local/cuda", "/usr/lib/cuda", "/opt/cuda"]

def _cuda_toolkit_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "")
    found = ""
    places = [] if home == "none" else ([home] if home else []) + _PLACES
    for place in places:
        if ctx.path(place + "/bin/nvcc").exists and ctx.path(place + "/include/cuda_runtime.h").exists:
            found = place
            break
    if found:
        ctx.symlink(found + "/include", "include")
        lib = found + "/lib64" if ctx.path(found + "/lib64/libcudart_static.a").exists else found + "/targets/x86_64-linux/lib"
        ctx.symlink(lib + "/libcudart_static.a", "libcudart_static.a")
        build = """package(default_visibility = ["//visibility:public"])
cc_library(
    name = "cudart",
    srcs = ["libcudart_static.a"],
    hdrs = glob(["include/**"], allow_empty = True),
    includes = ["include"],
    linkopts = ["-lpthread", "-ldl", "-lrt"],
)
"""
    else:
        build = """package(default_visibility = ["//visibility:public"])
cc_library(name = "cudart")
"""
    nccl = bool(found) and ctx.path(found + "/include/nccl.h").exists
    ctx.file("BUILD", build)
    ctx.file("defs.bzl", "CUDA_AVAILABLE = %s\nNVCC = %r\nNCCL_HEADER = %s\n" % (
        bool(found),
        found + "/bin/nvcc" if found else "",
        nccl,
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME"],
    local = True,
    doc = "@local_cuda: //:cudart (static runtime and headers) and defs.bzl (CUDA_AVAILABLE, NVCC, NCCL_HEADER).",
)
