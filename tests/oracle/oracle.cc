// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <map>
#include <string_view>

#include "base/check.h"

namespace thimble::testing {
namespace {

// Type names order them: addresses would not do so in the same way everywhere.
using EntryList = std::map<std::string_view, std::unique_ptr<const Entry>>;

EntryList& AllEntries() {
  static EntryList entries;
  return entries;
}

}  // namespace

void AddEntry(std::unique_ptr<const Entry> entry) {
  const char* name = entry->def().name();
  TH_CHECK(AllEntries().emplace(name, std::move(entry)).second);
}

std::vector<const Entry*> Entries() {
  std::vector<const Entry*> entries;
  entries.reserve(AllEntries().size());
  for (const auto& [name, entry] : AllEntries()) entries.push_back(entry.get());
  return entries;
}

const Entry& EntryOf(const OpDef& def) {
  const auto found = AllEntries().find(typeid(def).name());
  TH_CHECK(found != AllEntries().end() &&
           "an op without an entry in tests/oracle");
  return *found->second;
}

}  // namespace thimble::testing
