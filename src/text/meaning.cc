// SPDX-License-Identifier: Apache-2.0
#include "text/meaning.h"

#include "base/check.h"
#include "base/sha256.h"
#include "text/bpe.h"

namespace thimble::text {
namespace {

constexpr size_t kMeaningDigits = 16;

}  // namespace

Result<Meaning> ReadMeaning(const std::string& dir) {
  Sha256 sha;
  TH_ASSIGN_OR_RETURN(const auto codes, ReadCodes(dir + "/" + kCodesName));
  sha.Update(CodesText(codes));
  Meaning meaning;
  for (size_t side = 0; side < kTextSides; ++side) {
    TH_ASSIGN_OR_RETURN(const Dictionary dictionary,
                        Dictionary::Read(dir + "/" + kDictionaryNames[side]));
    meaning.vocabulary[side] = dictionary.size();
    for (int64_t word = 0; word < dictionary.words(); ++word) {
      sha.Update(dictionary.Text(kFirstWord + static_cast<int32_t>(word)));
      sha.Update("\n");
    }
  }
  meaning.digest = Hex(sha.Final()).substr(0, kMeaningDigits);
  return meaning;
}

}  // namespace thimble::text
