// SPDX-License-Identifier: Apache-2.0
#include "sparse_options.h"

#include <optional>
#include <string>
#include <string_view>

#include "thimble/number.h"

namespace thimble::cli {
namespace {

constexpr DecimalLimits kNonzero = {"above 0 and at most 1", [](double number) {
                                      return number > 0 && number <= 1;
                                    }};

// What 0 would mean is that nothing is rewired: --rewire fixed.
constexpr DecimalLimits kPrune = {"above 0 and below 1", [](double number) {
                                    return number > 0 && number < 1;
                                  }};
constexpr WholeLimits kPeriod = {1, kCount.most};

// "2x2": outputs by inputs.
std::optional<WeightBlock> ParseBlock(const std::string& text) {
  const size_t by = text.find('x');
  if (by == std::string::npos) return std::nullopt;
  const auto outputs = ParseWhole(text.substr(0, by));
  const auto inputs = ParseWhole(text.substr(by + 1));
  if (!outputs || !inputs || *outputs < 1 || *inputs < 1 || *outputs > 64 ||
      *inputs > 64 || *outputs * *inputs > 64) {
    return std::nullopt;
  }
  return WeightBlock{static_cast<int64_t>(*outputs),
                     static_cast<int64_t>(*inputs)};
}

std::string CheckBlock(const std::string& text) {
  if (text.empty()) return CheckNotEmpty(text);
  return ParseBlock(text).has_value()
             ? std::string()
             : "'" + text +
                   "' is no block of outputs by inputs of 1 to 64 weights, as "
                   "1x1 or 2x2";
}

}  // namespace

void AddSparseFlags(CLI::App& app, PlanFlags& flags) {
  AddDecimal(app, "--nonzero", flags.sparse.nonzero, kNonzero,
             "Stores this share of weights, above 0 and at most 1, and no "
             "others (default 1: all are stored, unless --allow lets --budget "
             "choose). Gradients and momentum are as sparse. Which ones "
             "changes while a network learns");
  app.get_option("--nonzero")->each([&flags](const std::string&) {
    flags.is_nonzero_given = true;
  });
  app.add_option_function<std::string>(
         "--pattern",
         [&flags](const std::string& text) {
           flags.sparse.block = *ParseBlock(text);
         },
         "Sparse weights are kept in blocks of outputs by inputs, which share "
         "an index: 1x1 (default), 2x2, …")
      ->type_name("OxI")
      ->check(CheckBlock);
  app.add_option_function<std::string>(
         "--sparse-index",
         [&flags](const std::string& text) {
           flags.sparse.index = *ParseIndexCodec(text);
         },
         "How the places of sparse weights are stored: packed, a column for "
         "each; bitmap, a bit for each place (default: what takes less)")
      ->type_name("packed|bitmap")
      ->check([](const std::string& text) {
        if (text.empty()) return CheckNotEmpty(text);
        const auto codec = ParseIndexCodec(text);
        return codec.ok() ? std::string() : codec.status().message();
      });
  app.add_option("--sparsify", flags.sparse.weights,
                 "Names of the weights to be sparse, separated by commas; * "
                 "stands for any text (default: those of convolutions and "
                 "linear layers, but not a network's first and last one)")
      ->type_name("NAMES")
      ->delimiter(',')
      ->check(CheckNotEmpty);
}

void AddRewiringFlags(CLI::App& app, RewiringOptions& options) {
  app.add_option_function<std::string>(
         "--rewire",
         [&options](const std::string& text) {
           options.method.reset();
           if (text == "dsr") options.method = RewireMethod::kDsr;
           if (text == "set") options.method = RewireMethod::kSet;
         },
         "How sparse weights find their places: dsr (default), the smallest of "
         "all weights together go where most survive; set, each weight has its "
         "smallest replaced; fixed, they stay where they were drawn")
      ->type_name("dsr|set|fixed")
      ->check(CLI::IsMember({"dsr", "set", "fixed"}));
  AddWhole(app, "--rewire-every", options.every, kPeriod,
           "Steps from one rewiring to the next, to the end (default: 100 at "
           "first, more later, none in the last twentieth, scaled for the "
           "density as in the paper)");
  AddDecimal(
      app, "--prune", options.prune, kPrune,
      "Share of the stored weights that a rewiring is to replace, "
      "above 0 and below 1 (default: as in the paper for the density; 0.3 with "
      "--rewire set)");
  app.add_option_function<std::string>(
         "--reset",
         [&options](const std::string& text) {
           options.reset =
               text == "new" ? StateReset::kNewBlocks : StateReset::kWhole;
         },
         "Momentum that a rewiring sets to zero: all of sparse weights "
         "(default), or that of new ones")
      ->type_name("all|new")
      ->check(CLI::IsMember({"all", "new"}));
}

bool MayBecomeSparse(const PlanFlags& flags) {
  return flags.allow_sparse && !flags.is_nonzero_given;
}

void CheckSparseEffects(const CLI::App& app, const PlanFlags& flags) {
  const CLI::Option* reset = app.get_option_no_throw("--reset");
  if (reset != nullptr && reset->count() > 0 && flags.state == "u8" &&
      reset->results().back() == "new") {
    throw CLI::ValidationError(
        "--reset",
        "optimizer state in 8 bits is reset as a whole when weights are "
        "rewired: its blocks share scales. Leave out --reset new, or "
        "--optimizer-state u8");
  }
  if (!flags.sparse.is_dense() || MayBecomeSparse(flags)) return;
  for (const char* option :
       {"--pattern", "--sparse-index", "--sparsify", "--rewire",
        "--rewire-every", "--prune", "--reset"}) {
    if (app.get_option_no_throw(option) == nullptr || app.count(option) == 0) {
      continue;
    }
    throw CLI::ValidationError(
        option,
        "is for sparse weights, and all are stored; add --nonzero below 1, or "
        "leave it out");
  }
}

}  // namespace thimble::cli
