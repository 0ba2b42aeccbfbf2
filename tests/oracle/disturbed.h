// SPDX-License-Identifier: Apache-2.0
//
// A number of which each operation is off by a factor of its own, so that a
// scalar definition for any element type also shows what rounding does inside
// of it: terms can be much larger than their sum. One thread.
#pragma once

#include <cmath>
#include <vector>

#include "oracle.h"

namespace thimble::testing {

class Disturbed {
 public:
  // While it lives, operations are disturbed by these.
  class By {
   public:
    explicit By(Factors& factors) { factors_ = &factors; }
    ~By() { factors_ = nullptr; }
    By(const By&) = delete;
    By& operator=(const By&) = delete;
  };

  explicit Disturbed(double value = 0) : value_(value) {}
  double value() const { return value_; }

  Disturbed& operator+=(const Disturbed& b) { return *this = *this + b; }
  Disturbed& operator*=(const Disturbed& b) { return *this = *this * b; }
  Disturbed& operator/=(const Disturbed& b) {
    return *this = Made(value_ / b.value_);
  }
  friend Disturbed operator+(const Disturbed& a, const Disturbed& b) {
    return Made(a.value_ + b.value_);
  }
  friend Disturbed operator-(const Disturbed& a, const Disturbed& b) {
    return Made(a.value_ - b.value_);
  }
  friend Disturbed operator*(const Disturbed& a, const Disturbed& b) {
    return Made(a.value_ * b.value_);
  }
  friend Disturbed exp(const Disturbed& a) { return Made(std::exp(a.value_)); }
  friend double real(const Disturbed& a) { return a.value_; }

 private:
  static Disturbed Made(double value) {
    return Disturbed(value * factors_->Next());
  }
  static inline Factors* factors_ = nullptr;

  double value_;
};

// Of a tensor as it is.
inline std::vector<Disturbed> ToDisturbed(const double* values, size_t n) {
  return std::vector<Disturbed>(values, values + n);
}

inline void Give(BackwardPass& pass, size_t k,
                 const std::vector<Disturbed>& made) {
  pass.Give(k, [&](double* to) {
    for (const Disturbed& x : made) *to++ = x.value();
  });
}

}  // namespace thimble::testing
