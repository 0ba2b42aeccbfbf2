// SPDX-License-Identifier: Apache-2.0
#include "thimble/reproduce.h"

#include "reproduce/figures.h"

namespace thimble {
namespace {

struct Entry {
  ReproductionName name;
  Result<Reproduction> (*make)(const ReproduceOptions&);
};

constexpr Entry kEntries[] = {
    {{"fig1", "Sohoni et al., what memory of training goes to"},
     reproduce::Figure1},
    {{"fig5", "Sohoni et al., FLOPs against memory of checkpoint strategies"},
     reproduce::Figure5},
    {{"table3",
      "Sohoni et al., memory of the best settings, planned and measured"},
     reproduce::Table3},
    {{"chen-resnet", "Chen et al., residual networks of up to 1,000 layers"},
     reproduce::ChenResnet},
    {{"chen-lstm", "Chen et al., an LSTM of up to 1,000 steps"},
     reproduce::ChenLstm},
};

}  // namespace

std::vector<ReproductionName> ReproductionNames() {
  std::vector<ReproductionName> names;
  for (const Entry& entry : kEntries) names.push_back(entry.name);
  return names;
}

Result<Reproduction> Reproduce(const std::string& name,
                               const ReproduceOptions& options) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (entry.name.name == name) return entry.make(options);
    known += (known.empty() ? "" : ", ") + std::string(entry.name.name);
  }
  return Status::Usage("there is no figure or table '" + name +
                       "'; there are: " + known);
}

}  // namespace thimble
