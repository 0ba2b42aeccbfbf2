// SPDX-License-Identifier: Apache-2.0
//
// Test only: a number that knows how far a computation in f32 may be off it, in
// whatever order its sums are made. A scalar definition for any element type,
// called with these, gives the bounds of what a kernel may compute. Values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace thimble::kernels::testing {

// The computed value is off by roundings * unit * magnitude at most, to first
// order: no partial sum is larger than the sum of its terms' magnitudes, and no
// term is rounded more often than terms are added.
class Bounded {
 public:
  // A constant, that two roundings may have made.
  explicit Bounded(double value = 0)
      : value_(value), magnitude_(std::abs(value)), roundings_(2) {}
  // What a tensor holds.
  static Bounded Exact(double value) {
    Bounded exact(value);
    exact.roundings_ = 0;
    return exact;
  }

  double value() const { return value_; }
  double Bound() const {
    return roundings_ * kUnit * magnitude_ + std::numeric_limits<float>::min();
  }

  Bounded& operator+=(const Bounded& b) { return *this = *this + b; }
  Bounded& operator*=(const Bounded& b) { return *this = *this * b; }
  // By a product with the inverse.
  Bounded& operator/=(const Bounded& b) {
    magnitude_ /= std::abs(b.value_);
    roundings_ += b.roundings_ * b.magnitude_ / std::abs(b.value_) + 2;
    value_ /= b.value_;
    return *this;
  }
  friend Bounded operator+(const Bounded& a, const Bounded& b) {
    return {a.value_ + b.value_, a.magnitude_ + b.magnitude_,
            std::max(a.roundings_, b.roundings_) + 1};
  }
  friend Bounded operator-(const Bounded& a, const Bounded& b) {
    return {a.value_ - b.value_, a.magnitude_ + b.magnitude_,
            std::max(a.roundings_, b.roundings_) + 1};
  }
  friend Bounded operator*(const Bounded& a, const Bounded& b) {
    return {a.value_ * b.value_, a.magnitude_ * b.magnitude_,
            a.roundings_ + b.roundings_ + 1};
  }
  // Highway documents exp to 1 ulp beside the rounded value: 3 units beside the
  // exact one. An error of its argument becomes a relative one.
  friend Bounded exp(const Bounded& a) {
    const double value = std::exp(a.value_);
    return {value, value, a.roundings_ * a.magnitude_ + 3};
  }
  friend double real(const Bounded& a) { return a.value_; }

 private:
  static constexpr double kUnit = std::numeric_limits<float>::epsilon() / 2;

  Bounded(double value, double magnitude, double roundings)
      : value_(value), magnitude_(magnitude), roundings_(roundings) {}

  double value_, magnitude_, roundings_;
};

inline std::vector<Bounded> ExactOnes(const std::vector<double>& values) {
  std::vector<Bounded> exact;
  for (const double value : values) exact.push_back(Bounded::Exact(value));
  return exact;
}

}  // namespace thimble::kernels::testing
