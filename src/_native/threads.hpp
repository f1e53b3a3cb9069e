// Rows shared among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace bochner {
namespace {

constexpr double least_work = 4e6;      // operations that are worth starting a thread for

// Threads live as long as one call: a forked child finds nothing half alive.
template <class Piece>
void share(std::size_t n, std::size_t piece, std::size_t threads, const Piece& work) {
    threads = std::min(threads, (n + piece - 1) / piece);
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

// n rows of `work` operations each, for `threads` at most.
template <class Piece>
void spread(std::size_t n, double work, std::size_t threads, const Piece& piece) {
    const std::size_t worth = 1 + std::size_t(std::min(double(n) * work / least_work, 1e6));
    threads = std::max<std::size_t>(1, std::min({threads, worth, n}));
    constexpr std::size_t largest = 192;
    const std::size_t even = (n + 4 * threads - 1) / (4 * threads);
    const std::size_t rows = std::max<std::size_t>(1, std::min(largest, threads > 1 ? even : n));
    share(n, rows, threads, piece);
}

}  // namespace
}  // namespace bochner
