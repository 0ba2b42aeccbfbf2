// SPDX-License-Identifier: Apache-2.0
//
// TH_CHECK(condition): aborts with file and line when one of our own invariants
// is broken, in every build. Never for what a user can cause: that is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace thimble::internal {

[[noreturn]] inline void CheckFailed(const char* condition, const char* file,
                                     int line) {
  std::fprintf(stderr, "thimble: internal error: %s:%d: check failed: %s\n",
               file, line, condition);
  std::abort();
}

}  // namespace thimble::internal

#define TH_CHECK(condition)   \
  ((condition)                \
       ? static_cast<void>(0) \
       : ::thimble::internal::CheckFailed(#condition, __FILE__, __LINE__))

// Returns the Status of `expression` from the enclosing function when it fails.
#define TH_RETURN_IF_ERROR(expression)           \
  do {                                           \
    ::thimble::Status th_status_ = (expression); \
    if (!th_status_.ok()) return th_status_;     \
  } while (false)

#define TH_CONCAT_INNER(a, b) a##b
#define TH_CONCAT(a, b) TH_CONCAT_INNER(a, b)

// TH_ASSIGN_OR_RETURN(auto x, MakeX()): x, or return MakeX's Status.
#define TH_ASSIGN_OR_RETURN(declaration, expression)                     \
  TH_ASSIGN_OR_RETURN_IMPL(TH_CONCAT(th_result_, __LINE__), declaration, \
                           expression)
#define TH_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return result.status();                       \
  declaration = *std::move(result)
