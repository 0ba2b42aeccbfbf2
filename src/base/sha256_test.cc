// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "base/test_sha256.h"

namespace thimble {
namespace {

// FIPS 180-4 examples and the NIST long message.
TEST(Sha256, MatchesTheNistVectors) {
  EXPECT_EQ(Sha256Hex(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      Sha256Hex("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklm"
                "noijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

TEST(Sha256, MatchesTheNistMillionLetters) {
  Sha256 sha;
  const std::string piece(1000, 'a');
  for (int i = 0; i < 1000; ++i) sha.Update(piece);
  EXPECT_EQ(Hex(sha.Final()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheInputIsCut) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t length = 0; length <= 200; ++length) {
    const std::string_view whole = std::string_view(text).substr(0, length);
    const std::string expected = Sha256Hex(whole);
    for (size_t piece : {1, 3, 55, 63, 64, 65}) {
      Sha256 sha;
      for (size_t at = 0; at < length; at += piece) {
        sha.Update(whole.substr(at, piece));
      }
      ASSERT_EQ(Hex(sha.Final()), expected) << length << " by " << piece;
    }
  }
}

}  // namespace
}  // namespace thimble
