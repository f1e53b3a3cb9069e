// The Python side of the loops: contiguous arrays in, one array filled, the interpreter released.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "levels.hpp"

namespace nb = nanobind;

namespace bochner {
namespace {

template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Row = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
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

std::string get_level() { return chosen().load()->name; }

void set_level(const std::string& name) {
    for (const Level* level : levels())
        if (name == level->name) return chosen().store(level);
    throw nb::value_error("this processor or build has no such instruction set");
}

// ---- threads

constexpr double least_work = 4e6;      // operations that are worth starting a thread for

// Threads live as long as one call: a forked child finds nothing half alive.
template <class Piece>
void share(std::size_t n, std::size_t piece, std::size_t threads, const Piece& work) {
    std::atomic<std::size_t> next{0};
    const auto worker = [&] {
        for (std::size_t first; (first = next.fetch_add(piece)) < n;)
            work(first, std::min(first + piece, n));
    };
    std::vector<std::thread> others;
    others.reserve(threads);
    try {
        while (others.size() + 1 < threads) others.emplace_back(worker);
    } catch (const std::system_error&) {
        // No more threads to be had: those that started, and this one, share the rows.
    }
    worker();
    for (std::thread& other : others) other.join();
}

template <class T>
void run(const Loops<T>& loops, const Task<T>& task, std::size_t threads) {
    const double work = double(task.n) * double(task.m) * double(task.d + 16);
    const std::size_t worth = 1 + std::size_t(std::min(work / least_work, 1e6));
    threads = std::max<std::size_t>(1, std::min({threads, worth, task.n}));
    constexpr std::size_t largest = 192;
    const std::size_t even = (task.n + 4 * threads - 1) / (4 * threads);
    const std::size_t piece = std::max<std::size_t>(1, std::min(largest, threads > 1 ? even : task.n));
    share(task.n, piece, threads,
          [&](std::size_t first, std::size_t last) { loops.run(task, first, last); });
}

// ---- calls

// The column side, packed and padded: `source` is (d, m) or, transposed, (m, d).
template <class T>
struct Packed {
    static constexpr std::size_t alignment = 64;
    std::vector<T> room;
    T *panels, *start;

    Packed(const Loops<T>& loops, const T* source, std::size_t d, std::size_t m, bool transposed) {
        const std::size_t padded = (m + loops.width - 1) / loops.width * loops.width;
        room.assign(padded * (d + 1) + alignment / sizeof(T), T(0));
        void* begin = room.data();
        std::size_t space = room.size() * sizeof(T);
        panels = static_cast<T*>(std::align(alignment, padded * (d + 1) * sizeof(T), begin, space));
        start = panels + padded * d;
        loops.pack(source, d, m, transposed ? 1 : m, transposed ? d : 1, panels);
    }
};

void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

template <class T>
Task<T> prepare(Op op, const Matrix<T>& X, std::size_t m, T scale, const Output<T>& out) {
    const std::size_t columns = op == Op::pair ? 2 * m : m;
    require(out.shape(0) == X.shape(0) && out.shape(1) == columns, "out has the wrong shape");
    if (out.size() > 0) {
        require(columns == 1 || out.stride(1) == 1, "rows of out must be contiguous");
        require(out.shape(0) == 1 || out.stride(0) >= std::ptrdiff_t(columns), "rows of out overlap");
    }
    Task<T> task{};
    task.op = op;
    task.X = X.data();
    task.n = X.shape(0);
    task.d = X.shape(1);
    task.m = m;
    task.scale = scale;
    task.out = out.data();
    task.stride = std::size_t(std::max<std::ptrdiff_t>(out.stride(0), 0));
    return task;
}

template <class T>
void evaluate(Task<T> task, const T* source, bool transposed, const T* bias, T start,
              std::size_t threads) {
    if (task.n == 0 || task.m == 0) return;
    nb::gil_scoped_release unlocked;
    const Loops<T>& loops = chosen().load()->loops<T>();
    Packed<T> packed(loops, source, task.d, task.m, transposed);
    for (std::size_t f = 0; f < task.m; ++f) packed.start[f] = bias ? bias[f] : start;
    task.columns = packed.panels;
    task.start = packed.start;
    run(loops, task, threads);
}

template <class T>
void cos_sin(Matrix<T> X, Matrix<T> turns, double scale, Output<T> out, std::size_t threads) {
    require(X.shape(1) == turns.shape(0), "X and T disagree about the number of columns");
    evaluate<T>(prepare<T>(Op::pair, X, turns.shape(1), T(scale), out), turns.data(), false, nullptr,
                T(0), threads);
}

template <class T>
void cos_bias(Matrix<T> X, Matrix<T> turns, Row<T> bias, double scale, Output<T> out,
              std::size_t threads) {
    require(X.shape(1) == turns.shape(0), "X and T disagree about the number of columns");
    require(bias.shape(0) == turns.shape(1), "T and b disagree about the number of frequencies");
    evaluate<T>(prepare<T>(Op::phase, X, turns.shape(1), T(scale), out), turns.data(), false,
                bias.data(), T(0), threads);
}

const std::map<std::string, Op> profiles = {
    {"gaussian", Op::gaussian},   {"exponential", Op::exponential},
    {"matern32", Op::matern32},   {"matern52", Op::matern52},
    {"laplace", Op::laplace},     {"rational_quadratic", Op::rational_quadratic},
    {"cauchy", Op::cauchy},
};

template <class T>
void radial(Matrix<T> X, Matrix<T> Y, const std::string& profile, double parameter, Output<T> out,
            std::size_t threads) {
    require(X.shape(1) == Y.shape(1), "X and Y disagree about the number of columns");
    const auto found = profiles.find(profile);
    require(found != profiles.end(), "no such profile");
    const T start = found->second == Op::cauchy ? T(1) : T(0);
    evaluate<T>(prepare<T>(found->second, X, Y.shape(0), T(parameter), out), Y.data(), true, nullptr,
                start, threads);
}

template <class T>
void bind(nb::module_& m) {
    const auto strict = [](const char* name) { return nb::arg(name).noconvert(); };
    m.def("cos_sin", &cos_sin<T>, strict("X"), strict("T"), nb::arg("scale"), strict("out"),
          nb::arg("threads"));
    m.def("cos_bias", &cos_bias<T>, strict("X"), strict("T"), strict("b"), nb::arg("scale"),
          strict("out"), nb::arg("threads"));
    m.def("radial", &radial<T>, strict("X"), strict("Y"), nb::arg("profile"), nb::arg("parameter"),
          strict("out"), nb::arg("threads"));
}

}  // namespace
}  // namespace bochner

NB_MODULE(_native, m) {
    m.doc() = "Compiled loops; bochner._ground.native is how the package calls them.";
    bochner::bind<float>(m);
    bochner::bind<double>(m);
    m.def("levels", &bochner::level_names, "Instruction sets this processor and build both have.");
    m.def("get_level", &bochner::get_level, "The instruction set in use.");
    m.def("set_level", &bochner::set_level, "Use another of `levels()`.");
}
