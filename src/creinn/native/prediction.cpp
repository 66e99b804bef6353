// Radii and credal sets of a few rows (creinn.distance.radius, creinn.credal.probability). For one row, the calls of
// tensor operations would take several times as long as the computation. The interface is plain C without torch.

#include <cfloat>
#include <cmath>
#include <cstdlib>

static constexpr long BLOCK = 16;  // rows are padded with zeros to a multiple
static constexpr long GROUP = 8;   // number of directions whose blocks alternate in memory

#define EACH(i, count) _Pragma("GCC unroll 32") for (int i = 0; i < count; i++)

// The functions for a type of processor.
struct Loops {
    void (*project)(const float* directions, long count, long size, float* x, float* products, bool subtract);
    float (*squared_distance)(const float* a, const float* b, long size);
};

namespace portable {
#define WIDTH 4
#include "project.inc"
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define WIDTH 8
#include "project.inc"
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
namespace avx512 {
#define WIDTH 16
#include "project.inc"
}
#pragma GCC pop_options
#endif

static const Loops* LOOPS[] = {
    &portable::LOOPS,
#if defined(__x86_64__)
    &avx2::LOOPS, &avx512::LOOPS,
#endif
};

static long padded(long size, long step = BLOCK) { return (size + step - 1) / step * step; }

// The arrays of a distance, in this order. The rows of matrices are padded.
struct Distance {
    long features, rank, axes, classes, size;  // size: of a whitened row
    const float *origin, *directions, *deviations, *means, *basis, *shares, *coordinates, *end;

    Distance(const long long* sizes, long classes, const float* at)
        : features(sizes[0]), rank(sizes[1]), axes(sizes[2]), classes(classes) {
        size = padded(rank) + (rank < features ? padded(features) : 0);
        origin = at, directions = origin + padded(features);
        deviations = directions + padded(rank, GROUP) * padded(features);
        means = deviations + size, basis = means + classes * size, shares = basis + padded(axes, GROUP) * size;
        coordinates = shares + axes, end = coordinates + classes * axes;
    }

    // Compute the squared and the relative distance of a row divided by `norm`.
    void terms(const Loops& loops, const float* row, float norm, float* work, float* squared, float* relative) const {
        const bool has_rest = rank < features;
        float *x = work, *whitened = x + padded(features), *u = whitened + size;
        for (long i = 0; i < padded(features); i++) x[i] = i < features ? row[i] / norm - origin[i] : 0;
        for (long i = 0; i < size; i++) whitened[i] = 0;
        loops.project(directions, rank, padded(features), x, whitened, has_rest);
        for (long i = 0; has_rest && i < features; i++) whitened[padded(rank) + i] = x[i];
        for (long i = 0; i < size; i++) whitened[i] /= deviations[i];
        loops.project(basis, axes, size, whitened, u, false);
        long nearest = 0;
        double least = INFINITY;
        for (long k = 0; k < classes; k++) {
            double found = 0;
            for (long j = 0; j < axes; j++) {
                const double difference = (double)u[j] - coordinates[k * axes + j];
                found += difference * difference;
            }
            if (found < least) least = found, nearest = k;
        }
        *squared = loops.squared_distance(whitened, means + nearest * size, size);
        *relative = 0;
        for (long j = 0; j < axes; j++) {
            const float difference = u[j] - coordinates[nearest * axes + j];
            *relative += difference * difference - shares[j] * u[j] * u[j];
        }
    }
};

static float norm_of(const float* row, long size) {
    double total = 0;
    for (long i = 0; i < size; i++) total += (double)row[i] * row[i];
    const float norm = (float)sqrt(total);
    return norm > FLT_MIN ? norm : FLT_MIN;
}

// The scores of the terms: (value - median) / spread.
struct Scores {
    const float *medians, *spreads, *sums;
    double scale, far_weight, power, most;

    double radius(const float* terms, long count, long near_terms) const {
        double near = 0, far = 0;
        for (long i = 0; i < count; i++) {
            const double z = ((double)terms[i] - medians[i]) / spreads[i];
            if (i >= count - near_terms) near += z;
            else if (!(z <= 0)) far += z;
        }
        const double weighted = (near - sums[0]) / sums[1] + far_weight * (far - sums[2]) / sums[3];
        const double score = (weighted - sums[4]) / sums[5];
        const double radius = scale * pow(score > 30 ? score : log1p(exp(score)), power);
        return score < most && radius < FLT_MAX ? radius : scale > 0 ? FLT_MAX : 0;
    }
};

// LSE of all entries but one, for each of them, as in numerics.logsumexp_others.
static void logsumexp_others(const double* x, long count, double* result) {
    long top = 0, second = -1;
    for (long k = 1; k < count; k++)
        if (x[k] > x[top]) second = top, top = k;
        else if (second < 0 || x[k] > x[second]) second = k;
    double total = 0, others = 0;
    for (long k = 0; k < count; k++)
        if (k != top) total += exp(x[k] - x[top]), others += exp(x[k] - x[second]);
    for (long k = 0; k < count; k++)
        result[k] = k == top ? x[second] + log(others) : x[top] + log1p(total - exp(x[k] - x[top]));
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

extern "C" {

// Compute the radii of rows. sizes: the numbers of layers, distances and classes, and for each distance those of
// features, directions and axes. values: the arrays of all distances, then those of Scores. The last distances are those
// of the unit directions of the last layers. Return 0, or 1 if there is not enough memory.
int creinn_radius(long rows, const long long* sizes, const float* values, const float* const* features, float* radii,
                  int level) {
    const long layers = sizes[0], distances = sizes[1], classes = sizes[2];
    const long units = distances - layers, count = layers + 2 * units;
    long room = count;
    for (long d = 0; d < distances; d++)
        room += 2 * padded(sizes[3 + 3 * d]) + padded(sizes[4 + 3 * d]) + padded(sizes[5 + 3 * d]);
    float* terms = (float*)malloc(sizeof(float) * room);
    if (!terms) return 1;
    for (long row = 0; row < rows; row++) {
        const float* at = values;
        for (long d = 0; d < distances; d++) {
            const bool is_unit = d >= layers;
            const Distance distance(sizes + 3 + 3 * d, classes, at);
            const float* x = features[is_unit ? d - units : d] + row * distance.features;
            float squared, relative;
            distance.terms(*LOOPS[level], x, is_unit ? norm_of(x, distance.features) : 1, terms + count, &squared,
                           &relative);
            terms[is_unit ? 2 * d - layers : d] = squared;
            if (is_unit) terms[2 * d - layers + 1] = relative;
            at = distance.end;
        }
        const float* tail = at + 2 * count + 6;
        const Scores scores = {at, at + count, at + 2 * count, tail[0], tail[1], tail[2], tail[3]};
        radii[row] = (float)scores.radius(terms, count, 2 * units);
    }
    free(terms);
    return 0;
}

// Compute the reachable probability intervals of logits (rows, classes), with classes >= 2. The radii can be null; they
// are limited to the range of the logits plus `most`. Return 0, or 1 if there is not enough memory.
int creinn_credal_set(const float* lower, const float* upper, const float* radii, long rows, long classes, int sound,
                      double most, float* lowest, float* highest) {
    double* work = (double*)malloc(sizeof(double) * 5 * classes);
    if (!work) return 1;
    double *low = work, *high = work + classes, *others = work + 2 * classes, *upper_others = work + 3 * classes;
    double* middle = work + 4 * classes;
    for (long row = 0; row < rows; row++, lower += classes, upper += classes, lowest += classes, highest += classes) {
        bool finite = true;
        double least = INFINITY, largest = -INFINITY;
        for (long k = 0; k < classes; k++) {
            finite = finite && upper[k] - lower[k] < INFINITY;
            least = lower[k] < least ? lower[k] : least, largest = upper[k] > largest ? upper[k] : largest;
        }
        if (!finite) {
            for (long k = 0; k < classes; k++) lowest[k] = 0, highest[k] = 1;
            continue;
        }
        const double magnitude = largest > -least ? largest : -least;
        const double room = largest - least + most + 16 * FLT_EPSILON * magnitude;
        const double added = radii ? (radii[row] < room ? radii[row] : room) : 0;
        for (long k = 0; k < classes; k++) {
            low[k] = lower[k] - added, high[k] = upper[k] + added;
            middle[k] = low[k] + (high[k] - low[k]) / 2;
        }
        logsumexp_others(sound ? high : middle, classes, others);
        if (sound) logsumexp_others(low, classes, upper_others);
        double sum_low = 0, sum_high = 0;
        for (long k = 0; k < classes; k++) {
            low[k] = sigmoid(low[k] - others[k]), high[k] = sigmoid(high[k] - (sound ? upper_others : others)[k]);
            sum_low += low[k], sum_high += high[k];
        }
        const double over = sum_high > 1 ? sum_high - 1 : 0, under = sum_low < 1 ? 1 - sum_low : 0;
        for (long k = 0; k < classes; k++) {  // reachable bounds
            const double q = high[k] - over > low[k] + 4 * FLT_EPSILON ? high[k] - over : low[k];
            const double p = low[k] + under < high[k] - 4 * FLT_EPSILON ? low[k] + under : high[k];
            lowest[k] = (float)q, highest[k] = (float)(p < q ? q : p);
        }
    }
    free(work);
    return 0;
}

}  // extern "C"
