// SPDX-License-Identifier: Apache-2.0
//
// FunctionRef: a reference to a callable, for parameters. Owns and allocates
// nothing; valid while the callable lives. As safe across threads as the
// callable is.
#pragma once

#include <type_traits>

namespace thimble {

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: implicit, so that lambdas can be passed
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace thimble
