// SPDX-License-Identifier: Apache-2.0
#include "data/places.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace thimble {
namespace {

TEST(UserCacheDir, FollowsTheXdgStandard) {
  const char* home = std::getenv("HOME");
  const std::string old_home = home == nullptr ? "/" : home;
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const std::string old_xdg = xdg == nullptr ? "" : xdg;

  setenv("HOME", "/home/ann", 1);
  setenv("XDG_CACHE_HOME", "/var/cache/ann", 1);
  EXPECT_EQ(*UserCacheDir(), "/var/cache/ann/thimble");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(*UserCacheDir(), "/home/ann/.cache/thimble");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(*UserCacheDir(), "/home/ann/.cache/thimble");
  unsetenv("HOME");
  EXPECT_NE(UserCacheDir().status().message().find("set HOME"),
            std::string::npos);

  setenv("HOME", old_home.c_str(), 1);
  if (xdg != nullptr) setenv("XDG_CACHE_HOME", old_xdg.c_str(), 1);
}

}  // namespace
}  // namespace thimble
