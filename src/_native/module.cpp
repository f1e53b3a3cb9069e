// The Python side of the loops: contiguous arrays in, one array filled, the interpreter released.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "levels.hpp"
#include "threads.hpp"

namespace nb = nanobind;

namespace bochner {
namespace {

template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Row = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Block = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T>
using Output = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

// ---- instruction sets

std::vector<const Level*> find_levels() {
    std::vector<const Level*> found{&level_baseline()};
#if defined(BOCHNER_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found.push_back(&level_avx2());
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        found.push_back(&level_avx512());
#endif
    return found;
}

const std::vector<const Level*>& levels() {
    static const std::vector<const Level*> found = find_levels();
    return found;
}

std::atomic<const Level*>& chosen() {
    static std::atomic<const Level*> level{levels().back()};
    return level;
}

std::vector<std::string> level_names() {
    std::vector<std::string> names;
    for (const Level* level : levels()) names.emplace_back(level->name);
    return names;
}

void set_level(const std::string& name) {
    for (const Level* level : levels())
        if (name == level->name) return chosen().store(level);
    throw nb::value_error("this processor or build has no such instruction set");
}

// ---- calls

// Zeros that begin where a cache line does.
template <class T>
T* aligned(std::vector<T>& room, std::size_t size) {
    constexpr std::size_t line = 64;
    room.assign(size + line / sizeof(T), T(0));
    void* begin = room.data();
    std::size_t space = room.size() * sizeof(T);
    return static_cast<T*>(std::align(line, size * sizeof(T), begin, space));
}

// The rows of a task, each of `work` operations, shared among threads with `room` numbers each.
template <class T, template <class> class Kind>
void each_row(Loop<T, Kind> loop, const Kind<T>& task, double work, std::size_t threads,
              std::size_t room = 0) {
    spread(task.n, work, threads, [&](std::size_t first, std::size_t last) {
        std::vector<T> numbers;
        loop(task, first, last, aligned(numbers, room));
    });
}

// The column side, packed and padded: `source` is (d, m) or, transposed, (m, d).
template <class T>
struct Packed {
    std::vector<T> room;
    T* panels;

    Packed(const Loops<T>& loops, const T* source, std::size_t d, std::size_t m, bool transposed) {
        const std::size_t padded = (m + loops.width - 1) / loops.width * loops.width;
        panels = aligned(room, padded * d);
        loops.pack(source, d, m, transposed ? 1 : m, transposed ? d : 1, panels);
    }
};

void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

// NumPy has arrays, of buffers and files, whose numbers do not lie where a T may.
template <class... Arrays>
void require_aligned(const Arrays&... arrays) {
    const auto aligned = [](const auto& array) {
        const auto place = reinterpret_cast<std::uintptr_t>(array.data());
        return array.size() == 0 || place % alignof(decltype(*array.data())) == 0;
    };
    require((aligned(arrays) && ...), "arrays must be aligned");
}

template <class T>
void require_room(const Output<T>& out, std::size_t rows, std::size_t columns) {
    require(out.shape(0) == rows && out.shape(1) == columns, "out has the wrong shape");
    if (out.size() == 0) return;
    require(columns == 1 || out.stride(1) == 1, "rows of out must be contiguous");
    require(rows == 1 || out.stride(0) >= std::ptrdiff_t(columns), "rows of out overlap");
}

template <class T>
std::size_t stride_of(const Output<T>& out) {
    return std::size_t(std::max<std::ptrdiff_t>(out.stride(0), 0));
}

template <class T>
Rows<T> rows_of(const Matrix<T>& X, const Output<T>& out, std::size_t columns) {
    require_room(out, X.shape(0), columns);
    return {X.data(), X.shape(0), X.shape(1), out.data(), stride_of(out)};
}

// With room for the vector that sticks out at its end.
template <class T>
std::vector<T> padded(const T* bias, std::size_t m) {
    std::vector<T> copy(m + 16, T(0));
    if (bias) std::copy_n(bias, m, copy.begin());
    return copy;
}

template <class T>
void evaluate(Op op, const Rows<T>& rows, const Matrix<T>& columns, bool transposed, const T* bias,
              T scale, std::size_t threads) {
    const std::size_t m = columns.shape(transposed ? 0 : 1);
    if (rows.n == 0 || m == 0) return;
    nb::gil_scoped_release unlocked;
    const Loops<T>& loops = chosen().load()->loops<T>();
    const Packed<T> packed(loops, columns.data(), rows.d, m, transposed);
    const std::vector<T> phase = padded(bias, m);
    const Task<T> task{rows, op, m, packed.panels, phase.data(), scale};
    each_row(loops.run, task, double(m) * double(rows.d + 16), threads);
}

// X (n, d), turns (d, m), bias (m) or, for pairs, none.
template <class T>
void waves(Matrix<T> X, Matrix<T> turns, Row<T> bias, double scale, Output<T> out,
           std::size_t threads) {
    require_aligned(X, turns, bias, out);
    const bool pairs = bias.shape(0) == 0;
    require(X.shape(1) == turns.shape(0), "X and T disagree about the number of columns");
    require(pairs || bias.shape(0) == turns.shape(1),
            "T and b disagree about the number of frequencies");
    evaluate<T>(pairs ? Op::pair : Op::phase, rows_of(X, out, (pairs ? 2 : 1) * turns.shape(1)),
                turns, false, pairs ? nullptr : bias.data(), T(scale), threads);
}

const std::map<std::string, Op> profiles = {
#define BOCHNER_NAME(name, sum) {#name, Op::name},
    BOCHNER_PROFILES(BOCHNER_NAME)
#undef BOCHNER_NAME
};

Op profile_named(const std::string& name) {
    const auto found = profiles.find(name);
    require(found != profiles.end(), "no such profile");
    return found->second;
}

template <class T>
void radial(Matrix<T> X, Matrix<T> Y, const std::string& profile, double parameter, Output<T> out,
            std::size_t threads) {
    require_aligned(X, Y, out);
    require(X.shape(1) == Y.shape(1), "X and Y disagree about the number of columns");
    const Op op = profile_named(profile);
    evaluate<T>(op, rows_of(X, out, Y.shape(0)), Y, true, nullptr, T(parameter), threads);
}

// Up to `together` rows of V. Groups of strips have sums of their own, and are fixed, so that no bit
// depends on the number of threads; long strips and short ones alternate, so that they are of one size.
template <class T>
void multiply(Symmetric<T> task, const T* V, std::size_t threads, double* out, std::size_t stride) {
    constexpr std::size_t groups = 16;
    const std::size_t size = task.t * task.padded;
    std::vector<T> room;
    std::vector<double> sums(groups * size, 0.0);
    T* right = aligned(room, size);
    for (std::size_t c = 0; c < task.t; ++c)
        std::copy_n(V + c * task.n, task.n, right + c * task.padded);
    task.V = right;
    const Loops<T>& loops = chosen().load()->loops<T>();
    const double work = 0.5 * double(task.n) * double(task.n) * double(task.d + 2 * task.t + 16);
    share(groups, 1, work > least_work ? threads : 1, [&](std::size_t group, std::size_t) {
        std::vector<T> own;
        T* begin = aligned(own, span * (task.d + task.t));
        for (std::size_t s = 0; s * span < task.n; ++s) {
            const std::size_t turn = s % (2 * groups);
            if (turn == group || turn == 2 * groups - 1 - group)
                loops.symmetric(task, s, begin, sums.data() + group * size);
        }
    });
    for (std::size_t c = 0; c < task.t; ++c)
        for (std::size_t i = 0; i < task.n; ++i) {
            double& sum = out[c * stride + i] = 0.0;
            for (std::size_t g = 0; g < groups; ++g) sum += sums[g * size + c * task.padded + i];
        }
}

template <class T>
void radial_product(Matrix<T> X, const std::string& profile, double parameter, Matrix<T> V,
                    Output<double> out, std::size_t threads) {
    require_aligned(X, V, out);
    const Op op = profile_named(profile);
    require(V.shape(1) == X.shape(0), "V must have a column for each row of X");
    require_room(out, V.shape(0), X.shape(0));
    if (out.size() == 0) return;
    nb::gil_scoped_release unlocked;
    const std::size_t n = X.shape(0);
    Symmetric<T> task{op, X.data(), n, X.shape(1), T(parameter), nullptr, 0,
                      (n + span - 1) / span * span};
    for (std::size_t first = 0; first < V.shape(0); first += together) {
        task.t = std::min(together, V.shape(0) - first);
        multiply<T>(task, V.data() + first * n, threads, out.data() + first * stride_of(out),
                    stride_of(out));
    }
}

bool power_of_two(std::size_t n) { return n > 0 && (n & (n - 1)) == 0; }

template <class T>
void hadamard(Matrix<T> X, Output<T> out, std::size_t threads) {
    require_aligned(X, out);
    require(power_of_two(X.shape(1)), "rows must have a power of two of columns");
    const Rows<T> rows = rows_of(X, out, X.shape(1));
    nb::gil_scoped_release unlocked;
    each_row(chosen().load()->loops<T>().hadamard, rows, 4.0 * double(rows.d), threads);
}

using Numbers = nb::ndarray<const std::int32_t, nb::c_contig, nb::device::cpu>;

// X (n, d), diagonals (blocks, steps + 1, p), orders (blocks, p) or none, bias (m) or, for pairs, none.
template <class T>
void chains(Matrix<T> X, Block<T> diagonals, Numbers orders, Row<T> bias, std::size_t m, double scale,
            Output<T> out, std::size_t threads) {
    require_aligned(X, diagonals, orders, bias, out);
    const std::size_t p = diagonals.shape(2);
    const bool pairs = bias.shape(0) == 0;
    require(power_of_two(p) && X.shape(1) <= p, "rows must fit a power of two of columns");
    require(diagonals.shape(1) > 1 && m <= p * diagonals.shape(0), "there are too few diagonals");
    require(orders.size() == 0 || orders.size() == p * diagonals.shape(0),
            "orders and diagonals disagree");
    for (std::size_t k = 0; k < orders.size(); ++k)
        require(orders.data()[k] >= 0 && std::size_t(orders.data()[k]) < p, "orders are out of range");
    require(pairs || bias.shape(0) == m, "there must be a phase for each frequency");
    const Rows<T> rows = rows_of(X, out, pairs ? 2 * m : m);
    if (out.size() == 0) return;
    nb::gil_scoped_release unlocked;
    const std::vector<T> phase = padded(pairs ? nullptr : bias.data(), m);
    const Chains<T> task{rows, pairs ? Op::pair : Op::phase, p, m, diagonals.shape(1) - 1,
                         diagonals.data(), orders.size() ? orders.data() : nullptr, phase.data(),
                         T(scale)};
    each_row(chosen().load()->loops<T>().chains, task,
             double(m) * (40.0 + 8.0 * double(task.steps)), threads, 2 * p + 32);
}

// X (n, d), columns (d, m), radial (n, functions, degree + 1), up and down (degree).
template <class T>
void polynomials(Matrix<T> X, Matrix<T> columns, Block<T> radial, Row<T> up, Row<T> down,
                 Output<T> out, std::size_t threads) {
    require_aligned(X, columns, radial, up, down, out);
    const std::size_t n = X.shape(0), d = X.shape(1), m = columns.shape(1);
    require(columns.shape(0) == d, "X and columns disagree about the number of columns");
    require(radial.shape(0) == n && radial.shape(2) == up.shape(0) + 1 &&
                down.shape(0) == up.shape(0),
            "radial, up and down disagree about rows or degrees");
    const Rows<T> rows = rows_of(X, out, radial.shape(1) * m);
    if (out.size() == 0) return;
    nb::gil_scoped_release unlocked;
    const Loops<T>& loops = chosen().load()->loops<T>();
    const Packed<T> packed(loops, columns.data(), d, m, false);
    const Polynomials<T> task{rows, m, packed.panels, radial.data(), radial.shape(1), up.shape(0),
                              up.data(), down.data()};
    const double work = double(m) * double(d + (3 + 2 * task.functions) * (task.degree + 1));
    each_row(loops.polynomials, task, work, threads);
}

// What a programme reads must be there: parents before children, inputs, and blocks of values.
template <class T>
void require_programme(const Harmonics<T>& task) {
    for (std::size_t i = 2; i < 2 * task.nodes; ++i) {
        const std::int32_t p = task.parents[i], u = task.inputs[i];
        require(p >= 0 && std::size_t(p) < i / 2, "a parent must come before its child");
        require(u >= 0 && std::size_t(u) < 2 * task.d, "there is no such input");
    }
    std::size_t width = 0;
    for (std::size_t b = 0; b < task.blocks; ++b) {
        require(task.first[b] >= 0 && task.count[b] >= 0 &&
                    std::size_t(task.first[b]) + std::size_t(task.count[b]) <= task.nodes,
                "a block must lie within the values");
        width += std::size_t(task.count[b]);
    }
    require(width == task.width, "out has the wrong shape");
}

// U (n, d), parents, inputs and factors (nodes, 2), radial (n, blocks), first and count (blocks).
template <class T>
void harmonics(Matrix<T> U, Numbers parents, Numbers inputs, Matrix<T> factors, Matrix<T> radial,
               Numbers first, Numbers count, Output<T> out, std::size_t threads) {
    require_aligned(U, parents, inputs, factors, radial, first, count, out);
    const std::size_t n = U.shape(0), d = U.shape(1), nodes = factors.shape(0);
    require(factors.shape(1) == 2 && parents.size() == 2 * nodes && inputs.size() == 2 * nodes,
            "parents, inputs and factors must be pairs, one for each value");
    require(radial.shape(0) == n && first.size() == radial.shape(1) &&
                count.size() == radial.shape(1),
            "radial, first and count disagree about rows or blocks");
    const Harmonics<T> task{rows_of(U, out, out.shape(1)), nodes, parents.data(), inputs.data(),
                            factors.data(), radial.data(), radial.shape(1), first.data(),
                            count.data(), out.shape(1)};
    require_programme(task);
    if (out.size() == 0) return;
    nb::gil_scoped_release unlocked;
    const std::size_t room = abreast * (2 * d + 2 * nodes + abreast) + task.width + abreast;
    each_row(chosen().load()->loops<T>().harmonics, task, double(4 * nodes + 2 * task.width), threads,
             room);
}

template <class T>
void bind(nb::module_& m) {
    const auto strict = [](const char* name) { return nb::arg(name).noconvert(); };
    m.def("waves", &waves<T>, strict("X"), strict("T"), strict("b"), nb::arg("scale"),
          strict("out"), nb::arg("threads"));
    m.def("radial", &radial<T>, strict("X"), strict("Y"), nb::arg("profile"), nb::arg("parameter"),
          strict("out"), nb::arg("threads"));
    m.def("radial_product", &radial_product<T>, strict("X"), nb::arg("profile"), nb::arg("parameter"),
          strict("V"), strict("out"), nb::arg("threads"));
    m.def("hadamard", &hadamard<T>, strict("X"), strict("out"), nb::arg("threads"));
    m.def("chains", &chains<T>, strict("X"), strict("diagonals"), strict("orders"), strict("bias"),
          nb::arg("m"), nb::arg("scale"), strict("out"), nb::arg("threads"));
    m.def("polynomials", &polynomials<T>, strict("X"), strict("columns"), strict("radial"),
          strict("up"), strict("down"), strict("out"), nb::arg("threads"));
    m.def("harmonics", &harmonics<T>, strict("U"), strict("parents"), strict("inputs"),
          strict("factors"), strict("radial"), strict("first"), strict("count"), strict("out"),
          nb::arg("threads"));
}

}  // namespace
}  // namespace bochner

NB_MODULE(_native, m) {
    m.doc() = "Compiled loops; bochner._core.native is how the package calls them.";
    bochner::bind<float>(m);
    bochner::bind<double>(m);
    m.def("levels", &bochner::level_names, "Instruction sets this processor and build both have.");
    m.def("get_level", [] { return bochner::chosen().load()->name; }, "The instruction set in use.");
    m.def("set_level", &bochner::set_level, "Use another of `levels()`.");
}
