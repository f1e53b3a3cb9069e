// cos, sin, exp and log on vectors. NaN in, NaN out; nothing traps, no tables, no branches.
#pragma once

#include "vectors.hpp"

namespace {

// c0 + x (c1 + x (c2 + ...))
template <class T, std::size_t N>
inline Vector<T> polynomial(Vector<T> x, const T (&c)[N]) {
    Vector<T> sum = all(c[N - 1]);
    for (std::size_t k = N - 1; k-- > 0;) sum = sum * x + c[k];
    return sum;
}

// The same of an even number of terms, two by two: a shorter wait.
template <class T, std::size_t N>
inline Vector<T> paired(Vector<T> x, const T (&c)[N]) {
    const Vector<T> square = x * x;
    Vector<T> sum = x * c[N - 1] + c[N - 2];
    for (std::size_t k = N - 2; k > 0; k -= 2) sum = sum * square + (x * c[k - 1] + c[k - 2]);
    return sum;
}

// Minimax on r in [-1/4, 1/4] turns, z = r^2: cos(2 pi r) = 1 + z C(z), sin(2 pi r) = r S(z).
// Absolute errors of the polynomials: 1e-9 and 8e-9 (float), 5e-18 and 8e-18 (double).
template <class T>
struct Circle;

template <>
struct Circle<float> {
    static constexpr float C[] = {-0x1.3bd3ccp+4f, 0x1.03c1d4p+6f, -0x1.55cd26p+6f,
                                  0x1.e0a1e2p+5f, -0x1.889fc6p+4f};
    static constexpr float S[] = {0x1.921fb4p+2f, -0x1.4abba2p+5f, 0x1.466504p+6f,
                                  -0x1.31fbf4p+6f, 0x1.3912a8p+5f};
};

template <>
struct Circle<double> {
    static constexpr double C[] = {-19.73920880217871, 64.93939402266406,  -85.45681720596168,
                                   60.24464131059664,  -26.42625394389117, 7.903459633229243,
                                   -1.7131858455912055, 0.2718005069643171};
    static constexpr double S[] = {6.283185307179586,  -41.34170224039957,  81.60524927603197,
                                   -76.70585974865708, 42.05869370439609,   -15.094635049185781,
                                   3.8198154705068928, -0.7167231746230927, 0.09717989035627252};
};

// t turns are r + h / 2 with |r| <= 1/4; half turns flip the sign of both. Two roundings, because
// one leaves whole turns behind when t is beyond the integers that the mantissa can hold.
template <class T>
struct Reduced {
    Vector<T> r, scale;
};

template <class T>
inline Reduced<T> reduce(Vector<T> t, T scale) {
    constexpr T magic = Lanes<T>::round;
    const Vector<T> turns = (t + magic) - magic;
    const Vector<T> rest = t - turns;
    const Vector<T> halves = rest * T(2) + magic;
    const Bits<T> flip = (Bits<T>)halves << (8 * sizeof(T) - 1);
    return {rest - (halves - magic) * T(0.5), (Vector<T>)((Bits<T>)all(scale) ^ flip)};
}

template <class T>
inline Vector<T> cosine(Reduced<T> a) {
    const Vector<T> z = a.r * a.r;
    return a.scale * (polynomial<T>(z, Circle<T>::C) * z + T(1));
}

template <class T>
inline Vector<T> sine(Reduced<T> a) {
    return a.scale * a.r * polynomial<T>(a.r * a.r, Circle<T>::S);
}

// Minimax of 2^r on r in [-1/2, 1/2], 1 at 0: relative errors 9e-8 (float), 3e-18 (double).
template <class T>
struct Power;

template <>
struct Power<float> {
    static constexpr float lowest = -125.f;
    static constexpr float c[] = {1.f,            0.6931469776f,  0.2402224208f,
                                  0.05550733744f, 0.009671512661f, 0.00132647269f};
};

template <>
struct Power<double> {
    static constexpr double lowest = -1021.;
    static constexpr double c[] = {1., 0.69314718055994531, 0.2402265069591016,
                                   0.055504108664821627, 0.0096181291075872567,
                                   0.0013333558146406471, 0.00015403530463724354,
                                   1.5252733841556773e-5, 1.3215432535912376e-6,
                                   1.0178057087733941e-7, 7.074194297288521e-9,
                                   4.4558179083360645e-10};
};

// 2^x for x <= 0; numbers too small for a normal result give 0. x is rounded: the relative error is
// about |x| roundings, as many as the sum that x comes from has.
template <class T>
inline Vector<T> power_of_two(Vector<T> x) {
    constexpr T magic = Lanes<T>::round;
    const Vector<T> shifted = x + magic;
    const Vector<T> r = x - (shifted - magic);
    const Bits<T> exponent = (Bits<T>)shifted << Lanes<T>::mantissa;
    const Vector<T> power = (Vector<T>)((Bits<T>)paired<T>(r, Power<T>::c) + exponent);
    return choose<T>(x < Power<T>::lowest, Vector<T>{}, power);
}

template <class T>
inline Vector<T> exp_negative(Vector<T> x) {
    return power_of_two<T>(x * T(1.4426950408889634074));
}

// 2 atanh(s) = s (2 + z (2/3 + z (2/5 + ...))), z = s^2
template <class T>
struct Logarithm;

template <>
struct Logarithm<float> {
    static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    static constexpr float c[] = {2.f, 2.f / 3.f, 2.f / 5.f, 2.f / 7.f, 2.f / 9.f, 2.f / 11.f};
};

template <>
struct Logarithm<double> {
    static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double c[] = {2.,      2. / 3,  2. / 5,  2. / 7,  2. / 9, 2. / 11,
                                   2. / 13, 2. / 15, 2. / 17, 2. / 19, 2. / 21};
};

// log(1 + u) for u >= 0, without losing a small u in 1 + u.
template <class T>
inline Vector<T> log_one_plus(Vector<T> u) {
    using integer = typename Lanes<T>::integer;
    constexpr T magic = Lanes<T>::round;
    constexpr T root_half = T(0.70710678118654752440);
    integer half_bits, magic_bits;
    std::memcpy(&half_bits, &root_half, sizeof half_bits);
    std::memcpy(&magic_bits, &magic, sizeof magic_bits);
    const Vector<T> y = u + T(1);
    // y = 2^e f with f in [sqrt(1/2), sqrt(2)) and e >= 0.
    const Bits<T> e = ((Bits<T>)y - half_bits) >> Lanes<T>::mantissa;
    const Vector<T> f = (Vector<T>)((Bits<T>)y - (e << Lanes<T>::mantissa)) - T(1);
    const Vector<T> whole = (Vector<T>)(e + magic_bits) - magic;
    const Vector<T> g = choose<T>(y < T(1.41421356237309504880), u, f);
    const Vector<T> s = g / (g + T(2));
    using L = Logarithm<T>;
    const Vector<T> tail = s * polynomial<T>(s * s, L::c);
    const Vector<T> log = whole * L::ln2_high + (whole * L::ln2_low + tail);
    // Infinity minus infinity above is NaN; so is NaN, and both must stay what they were.
    constexpr T huge = sizeof(T) == 4 ? T(3.4e38) : T(1.7e308);
    return choose<T>(y <= huge, log, y);
}

}  // namespace
