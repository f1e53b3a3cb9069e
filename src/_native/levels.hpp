// What the loops are asked to do, and the table of loops that each instruction set fills.
#pragma once

#include <cstddef>

namespace bochner {

enum class Op {
    pair,                // scale * cos(2 pi t) | scale * sin(2 pi t)
    phase,               // scale * cos(2 pi t)
    gaussian,            // exp(-s / 2)
    exponential,         // exp(-sqrt s)
    matern32,            // (1 + a) exp(-a), a = sqrt(3 s)
    matern52,            // (1 + a + a^2 / 3) exp(-a), a = sqrt(5 s)
    rational_quadratic,  // (1 + s / (2 p))^-p
    laplace,             // exp(-sum |x - y|)
    cauchy,              // prod 1 / (1 + (x - y)^2)
};

// One call: n rows of d columns against m packed columns, into rows of `out` that lie `stride`
// apart. `start` holds, packed, what each column's sum begins with.
template <class T>
struct Task {
    Op op;
    const T* X;
    std::size_t n, d, m;
    const T* columns;
    const T* start;
    T scale;  // of the features, or the parameter of the profile
    T* out;
    std::size_t stride;
};

template <class T>
struct Loops {
    std::size_t width;  // columns in a packed panel
    // Element (j, f) is source[j * row + f * column]; panels are padded with zeros.
    void (*pack)(const T* source, std::size_t d, std::size_t m, std::size_t row,
                 std::size_t column, T* panels);
    void (*run)(const Task<T>& task, std::size_t first, std::size_t last);
};

struct Level {
    const char* name;
    Loops<float> single;
    Loops<double> full;

    template <class T>
    const Loops<T>& loops() const;
};

template <>
inline const Loops<float>& Level::loops<float>() const { return single; }
template <>
inline const Loops<double>& Level::loops<double>() const { return full; }

const Level& level_baseline();
const Level& level_avx2();
const Level& level_avx512();

}  // namespace bochner
