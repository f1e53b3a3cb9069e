// Compiled once for each instruction set, with its flags and its name.
#include "chains.hpp"
#include "loops.hpp"
#include "products.hpp"
#include "recurrence.hpp"

#define BOCHNER_JOIN(a, b) a##b
#define BOCHNER_FUNCTION(level) BOCHNER_JOIN(level_, level)
#define BOCHNER_TEXT(level) BOCHNER_QUOTE(level)
#define BOCHNER_QUOTE(level) #level

namespace {

template <class T>
constexpr bochner::Loops<T> loops = {panel_width<T>, pack<T>,        run<T>,
                                     hadamard<T>,    chains<T>,      polynomials<T>,
                                     harmonics<T>,   symmetric<T>};

}  // namespace

namespace bochner {

const Level& BOCHNER_FUNCTION(BOCHNER_LEVEL)() {
    static const Level level = {BOCHNER_TEXT(BOCHNER_LEVEL), loops<float>, loops<double>};
    return level;
}

}  // namespace bochner
