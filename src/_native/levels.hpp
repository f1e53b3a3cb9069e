// What the loops are asked to do, and the table of loops that each instruction set fills.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bochner {

// Kernels of distances: name, the sum s over the inputs, the sum in products with their matrix.
//
//   gaussian            exp(-s / 2)
//   exponential         exp(-sqrt s)
//   matern32            (1 + a) exp(-a), a = sqrt(3 s)
//   matern52            (1 + a + a^2 / 3) exp(-a), a = sqrt(5 s)
//   rational_quadratic  (1 + s / (2 p))^-p
//   laplace             exp(-sum |x - y|)
//   cauchy              prod 1 / (1 + (x - y)^2)
#define BOCHNER_PROFILES(profile) \
    profile(gaussian, Squares) profile(exponential, Squares) profile(matern32, Squares) \
    profile(matern52, Squares) profile(rational_quadratic, Squares) profile(laplace, Magnitudes) \
    profile(cauchy, Factors)

enum class Op {
#define BOCHNER_OP(name, sum) name,
    BOCHNER_PROFILES(BOCHNER_OP)
#undef BOCHNER_OP
    pair,   // scale * cos(2 pi t) | scale * sin(2 pi t)
    phase,  // scale * cos(2 pi (t + phase))
};

// n rows of d numbers that lie together, and what is made of them: rows of `out`, `stride` apart.
template <class T>
struct Rows {
    const T* X;
    std::size_t n, d;
    T* out;
    std::size_t stride;
};

// Rows against m packed columns. `phase` holds, padded, what is added to the sum of each column.
template <class T>
struct Task : Rows<T> {
    Op op;
    std::size_t m;
    const T* columns;
    const T* phase;
    T scale;  // of the features, or the parameter of the profile
};

// Sums over degrees l of h_l p_l(t), t the inner products of rows with packed columns, clipped to
// [-1, 1]; p_0 = 1, p_{l+1} = up_l t p_l - down_l p_{l-1}. `radial` holds for each row the h_l of
// each function, together; function f fills the m columns from f m on.
template <class T>
struct Polynomials : Rows<T> {
    std::size_t m;
    const T* columns;
    const T* radial;
    std::size_t functions, degree;
    const T* up;
    const T* down;
};

// Blocks of p frequencies, m in all, as products of `steps` Hadamard matrices with diagonals before,
// between and after them; d <= p. Where there are `orders`, the numbers of each block are put into
// its order after the first product.
template <class T>
struct Chains : Rows<T> {
    Op op;
    std::size_t p, m, steps;
    const T* diagonals;
    const std::int32_t* orders;
    const T* phase;
    T scale;
};

constexpr std::size_t abreast = 16;

// A straight-line programme: value 0 is 1, each other one c0 w[u0] v[p0] + c1 w[u1] v[p1], with w the
// d coordinates of a row and their d cumulative sums of squares. Block b of the result is `count`
// values from `first` on, times the row's radial factor b.
template <class T>
struct Harmonics : Rows<T> {
    std::size_t nodes;
    const std::int32_t* parents;
    const std::int32_t* inputs;
    const T* factors;
    const T* radial;
    std::size_t blocks;
    const std::int32_t* first;
    const std::int32_t* count;
    std::size_t width;
};

constexpr std::size_t span = 256;     // columns of a strip of a symmetric matrix
constexpr std::size_t together = 16;  // vectors that share its values, at most

// The kernel matrix of n rows with one another times t <= together rows of V, added to `out`; both
// lie `padded` apart, a multiple of span.
template <class T>
struct Symmetric {
    Op op;
    const T* X;
    std::size_t n, d;
    T parameter;
    const T* V;
    std::size_t t, padded;
};

// Makes rows `first` to `last` of a task; `room` is as large as the loop says where it is called.
template <class T, template <class> class Kind>
using Loop = void (*)(const Kind<T>& task, std::size_t first, std::size_t last, T* room);

template <class T>
struct Loops {
    std::size_t width;  // columns in a packed panel
    // Element (j, f) is source[j * row + f * column]; panels are padded with zeros.
    void (*pack)(const T* source, std::size_t d, std::size_t m, std::size_t row,
                 std::size_t column, T* panels);
    Loop<T, Task> run;
    Loop<T, Rows> hadamard;
    Loop<T, Chains> chains;
    Loop<T, Polynomials> polynomials;
    Loop<T, Harmonics> harmonics;
    void (*symmetric)(const Symmetric<T>& task, std::size_t s, T* room, double* out);
};

struct Level {
    const char* name;
    Loops<float> single;
    Loops<double> full;

    template <class T>
    const Loops<T>& loops() const {
        if constexpr (sizeof(T) == sizeof(float)) return single;
        else return full;
    }
};

const Level& level_baseline();
const Level& level_avx2();
const Level& level_avx512();

}  // namespace bochner
