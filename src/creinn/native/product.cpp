// Product of intervals >= 0 and interval weights (sim_full_o_lower_upper), for linear layers and convolutions, with two
// multiplications for each weight and pixel. The interface is plain C without torch.
//
// The inputs are the bounds (images, 2, channels, height, width) and the weights as packed by creinn.native. The
// results are the bounds after a norm in eval mode, a residual and a ReLU. This file divides the work among threads and
// chooses the instructions; tile.inc contains the computation.

#include <cstdlib>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the lower bound of a weight must be in the low half of the pair"
#endif

static constexpr long AHEAD = 8;      // number of channels that are prefetched
static constexpr long OUTPUTS = 512;  // maximum number of outputs of a task, so that the sums fit into the L2 cache

// An unrolled loop over values in registers.
#define EACH(i, count) _Pragma("GCC unroll 32") for (int i = 0; i < count; i++)

struct Layer {
    long images, channels, height, width, outputs, groups, out_height, out_width;  // channels and outputs of a group
    long kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
    long step, magnitude, relu;  // step: number of inputs that are multiplied at once
    const float *inputs, *norm, *residual;  // norm: for each output four numbers, see `put`
    const long long* weights;  // for each step and output a word of signs, then for each input both bounds
    float* results;
};

struct Run { long to, count, from; };  // consecutive pixels in a row of the image

// Find the image pixels under a tap of the kernel, for outputs from `first` to `first + used`; the others are padding.
static int find_runs(const Layer& l, long tap, long first, long used, Run* runs) {
    const long image = 2 * l.groups * l.channels * l.height * l.width;
    const long down = tap / l.kernel_x * l.dilation_y - l.padding_y;
    const long right = tap % l.kernel_x * l.dilation_x - l.padding_x;
    const auto columns = [&](long pixels) { return pixels > 0 ? (pixels + l.stride_x - 1) / l.stride_x : 0; };
    const long from = columns(-right), until = columns(l.width - right);  // columns whose input is in the image
    long row = first / l.out_width, x = first % l.out_width, number = row / l.out_height, found = 0;
    row %= l.out_height;
    for (long done = 0; done < used; done += l.out_width - x, x = 0) {
        const long stop = x + used - done < l.out_width ? x + used - done : l.out_width;
        const long begin = x > from ? x : from, end = stop < until ? stop : until;
        const long y = row * l.stride_y + down;
        if (y >= 0 && y < l.height && begin < end)
            runs[found++] = {done + begin - x, end - begin, number * image + y * l.width + right + begin * l.stride_x};
        if (++row == l.out_height) row = 0, number++;
    }
    return (int)found;
}

// The functions and sizes for a type of processor.
struct Level {
    void (*tile)(int vectors, const Layer&, long group, long output, long outputs, long first, long used, float* work);
    long width, most, map;  // numbers in a vector, vectors in a tile, and bytes of the map of a tap
};

namespace portable {
#define WIDTH 4
#define MOST 7
#define ROWS 1
#include "tile.inc"
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define WIDTH 8
#define MOST 7
#define ROWS 1
#include "tile.inc"
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
namespace avx512 {
#define WIDTH 16
#define MOST 6
#define ROWS 2
#include "tile.inc"
}
#pragma GCC pop_options
#endif

static const Level* LEVELS[] = {
    &portable::LEVEL,
#if defined(__x86_64__)
    &avx2::LEVEL, &avx512::LEVEL,
#endif
};

// Memory of this thread for at least this many numbers.
static float* workspace(size_t numbers) {
    struct Memory {
        float* at = nullptr;
        size_t numbers = 0;
        ~Memory() { free(at); }
    };
    static thread_local Memory memory;
    if (memory.numbers < numbers) {
        free(memory.at);
        memory.at = (float*)aligned_alloc(64, (4 * numbers + 63) / 64 * 64);
        memory.numbers = memory.at ? numbers : 0;
    }
    return memory.at;
}

extern "C" {

// Return the highest level of this processor: 0 portable, 1 AVX2, 2 AVX-512.
int creinn_best_level() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

// Return the size of Layer, to detect a library that was built from other sources.
int creinn_size_of_layer() { return sizeof(Layer); }

// Compute a layer with a number of threads. Return 0, or 1 if there is not enough memory.
int creinn_product(const Layer* given, int threads, int number) {
    Layer l = *given;
    const Level& level = *LEVELS[number];
    if (l.kernel_y * l.kernel_x == 1 && l.stride_y * l.stride_x == 1 && !l.padding_y && !l.padding_x) {
        l.out_width = l.width *= l.height;  // the image can be one row
        l.out_height = l.height = 1;
    }
    const long pixels = l.images * l.out_height * l.out_width, vectors = (pixels + level.width - 1) / level.width;
    const long tiles = (vectors + level.most - 1) / level.most;
    long parts = (l.outputs + OUTPUTS - 1) / OUTPUTS;  // into which the outputs of a group are divided
    while (tiles * l.groups * parts < 4 * threads && tiles * l.groups * parts % threads && parts < l.outputs) parts++;
    const long numbers = 2 * level.most * level.width * (l.step + (l.outputs + parts - 1) / parts) +
                         l.kernel_y * l.kernel_x * level.map / (long)sizeof(float);
    bool failed = false;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (long task = 0; task < tiles * l.groups * parts; task++) {
        const long part = task % parts, tile = task / parts % tiles, group = task / parts / tiles;
        const long output = l.outputs * part / parts, outputs = l.outputs * (part + 1) / parts - output;
        const long first = vectors * tile / tiles, count = vectors * (tile + 1) / tiles - first;
        const long begin = first * level.width, end = begin + count * level.width;
        float* work = workspace(numbers);
        if (!work) failed = true;
        else level.tile((int)count, l, group, output, outputs, begin, (end < pixels ? end : pixels) - begin, work);
    }
    return failed;
}

}  // extern "C"
