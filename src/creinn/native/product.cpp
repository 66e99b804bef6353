// The product of intervals >= 0 with interval weights (sim_full_o_lower_upper), for linear layers and convolutions:
// two multiplications for each weight and pixel, one for each bound. A plain C interface; knows nothing of torch.
//
// In: both bounds of the inputs (images, 2, channels, height, width), weights as creinn.native packs them. Out: both
// bounds of the results, after a norm in inference form, a residual and a ReLU. tile.inc computes, this file shares
// the work among threads and chooses the instructions.

#include <cstdlib>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the lower bound of a weight must lie in the low half of the pair"
#endif

static constexpr long AHEAD = 8;      // channels whose place in memory is fetched before its time
static constexpr long OUTPUTS = 512;  // about the most outputs of one task: their sums stay in the second cache

// A loop that is unrolled: what it counts stays in registers.
#define EACH(i, count) _Pragma("GCC unroll 32") for (int i = 0; i < count; i++)

struct Layer {
    long images, channels, height, width, outputs, groups, out_height, out_width;  // channels, outputs: of a group
    long kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
    long step, magnitude, relu;  // step: inputs that are multiplied at once
    const float *inputs, *norm, *residual;  // norm: for each output four numbers, see `put`
    const long long* weights;  // for each step and output a word of signs, then for each input both bounds
    float* results;
};

struct Run { long to, count, from; };  // pixels that follow one another in a row of the image

// Where a tap of the kernel meets the image, for pixels from `first` to `first + used`; what is not found is padding.
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

// What a kind of processor does with `used` pixels in so many vectors, and the width and the number of these.
struct Level {
    void (*tile)(int vectors, const Layer&, long group, long output, long outputs, long first, long used, float* work);
    long width, most, map;  // map: bytes that say where the inputs of a tap are
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

// This thread's memory, of so many numbers at least: inputs of one step, and the sums of a task.
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

// The best level that this processor has: 0 portable, 1 AVX2, 2 AVX-512.
int creinn_best_level() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

// Whoever calls the library must know Layer as it is here.
int creinn_size_of_layer() { return sizeof(Layer); }

// All results of a layer, by so many threads. Returns 0, or 1 if there is not enough memory.
int creinn_product(const Layer* given, int threads, int number) {
    Layer l = *given;
    const Level& level = *LEVELS[number];
    if (l.kernel_y * l.kernel_x == 1 && l.stride_y * l.stride_x == 1 && !l.padding_y && !l.padding_x) {
        l.out_width = l.width *= l.height;  // rows of pixels do not matter
        l.out_height = l.height = 1;
    }
    const long pixels = l.images * l.out_height * l.out_width, vectors = (pixels + level.width - 1) / level.width;
    const long tiles = (vectors + level.most - 1) / level.most;
    long parts = (l.outputs + OUTPUTS - 1) / OUTPUTS;  // of the outputs of a group
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
