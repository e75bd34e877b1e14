"""One shape for every fuzz target.

A target defines LLVMFuzzerTestOneInput. With --config=fuzz it is a libFuzzer binary:
    bazel run --config=fuzz //tests/fuzz:safetensors_fuzz -- -max_total_time=60
Otherwise replay_main.cc runs it over the corpus and over fixed mutations of it, so that
the target is an ordinary, deterministic test.
"""

def fuzz_target(name, srcs, deps, corpus):
    native.cc_test(
        name = name,
        size = "small",
        srcs = srcs + select({
            "//tests/fuzz:fuzzing": [],
            "//conditions:default": ["//tests/fuzz:replay_main.cc"],
        }),
        args = ["$(location " + path + ")" for path in corpus],
        data = corpus,
        linkstatic = True,
        linkopts = select({
            # Bazel links with the C driver, which leaves ubsan's C++ half out by itself.
            "//tests/fuzz:fuzzing": [
                "-fsanitize=fuzzer",
                "-fsanitize-link-c++-runtime",
            ],
            "//conditions:default": [],
        }),
        deps = deps,
    )
