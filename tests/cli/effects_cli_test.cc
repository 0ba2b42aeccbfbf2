// SPDX-License-Identifier: Apache-2.0
//
// Options that would have no effect are refused, with the reason, and what is
// wrong with options is said before anything is planned.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "expect_cli.h"

namespace thimble {
namespace {

using Json = nlohmann::json;

// By `plan` and by `train`.
void ExpectBothRefuse(const std::string& model, const Args& options,
                      const std::string& says) {
  ExpectRefused(Args{"plan", model} + options, 2, says);
  ExpectRefused(Args{"train", model, "--data", "synthetic"} + options, 2, says);
}

TEST(Effects, OfAllowAreNoneWithoutABudget) {
  for (const char* what : {"exact", "microbatch", "f16", "microbatch,bf16"}) {
    ExpectBothRefuse("cnn", {"--allow", what},
                     "--allow: says what --budget may change");
  }
}

TEST(Effects, OfATargetClassAreNoneWhereNothingIsToBeChosen) {
  const Args to_choose = {"--budget", "1GB", "--target-class", "generic"};
  const char* says = "--target-class: decides between f16 and bf16";
  ExpectBothRefuse("mlp", {"--target-class", "generic"}, says);
  for (const char* what : {"microbatch", "f16", "bf16"}) {
    ExpectBothRefuse("mlp", to_choose + Args{"--allow", what}, says);
  }
  const Args both = to_choose + Args{"--allow", "f16,bf16"};
  EXPECT_EQ(RunCli(Args{"plan", "mlp"} + both).exit_code, 0);
}

TEST(Effects, OfTwoPassesAreNoneWhereNothingIsFused) {
  ExpectBothRefuse("cnn", {"--fuse", "off", "--two-pass", "on"},
                   "with --fuse off there are none");
  for (const char* model : {"mlp", "lstm-1-8-28"}) {
    ExpectBothRefuse(model, {"--two-pass", "on"},
                     std::string(model) + " has none");
  }
  EXPECT_EQ(RunCli({"plan", "cnn", "--two-pass", "on"}).exit_code, 0);
  for (const Args& off :
       {Args{"plan", "mlp", "--two-pass", "off"},
        Args{"plan", "cnn", "--two-pass", "off", "--fuse", "off"}}) {
    EXPECT_EQ(RunCli(off).exit_code, 0);
  }
}

TEST(Effects, OfMomentumsOptionsAreNoneWithoutIt) {
  for (const char* form : {"--nesterov", "--no-nesterov"}) {
    ExpectBothRefuse("mlp", {form, "--momentum", "0"},
                     std::string(form) + ": is a form of momentum");
  }
  for (const char* type : {"u8", "f16"}) {
    ExpectBothRefuse("mlp", {"--optimizer-state", type, "--momentum", "0"},
                     "--momentum 0 keeps nothing");
  }
  for (const Args& good :
       {Args{"--momentum", "0"}, Args{"--nesterov", "--optimizer-state", "u8"},
        Args{"--optimizer", "adam", "--optimizer-state", "u8"}}) {
    EXPECT_EQ(RunCli(Args{"plan", "mlp"} + good).exit_code, 0);
  }
}

TEST(Effects, OfSparseOptionsAreNoneWhereAllWeightsAreStored) {
  const std::string says = "is for sparse weights, and all are stored";
  for (const Args& options :
       {Args{"--pattern", "2x2"}, Args{"--sparse-index", "packed"},
        Args{"--sparsify", "fc1.weight"},
        Args{"--nonzero", "1", "--pattern", "1x1"}}) {
    ExpectBothRefuse("mlp", options, says);
  }
  const Args train = {"train", "mlp", "--data", "synthetic"};
  for (const Args& options :
       {Args{"--rewire", "dsr"}, Args{"--rewire-every", "2"},
        Args{"--prune", "0.1"}, Args{"--reset", "all"}}) {
    ExpectRefused(train + options, 2, options[0] + ": " + says);
  }
}

TEST(Effects, OfRewiringOptionsAreNoneWhereNothingIsRewired) {
  const Args train = {"train",     "mlp", "--data",   "synthetic",
                      "--nonzero", "0.3", "--rewire", "fixed"};
  const std::string says =
      "a fixed pattern is not rewired: leave out --rewire-every, --prune and "
      "--reset, or name a method (--rewire)";
  ExpectRefused(train + Args{"--rewire-every", "3"}, 2, says);
  ExpectRefused(train + Args{"--prune", "0.1"}, 2, says);
  ExpectRefused(train + Args{"--reset", "new"}, 2, says);
  for (const char* reset : {"all", "new"}) {
    ExpectRefused({"train", "mlp", "--data", "synthetic", "--nonzero", "0.3",
                   "--momentum", "0", "--reset", reset},
                  2, "--reset: is for momentum, and --momentum 0 keeps none");
  }
}

// Planning may take long: it is told before.
TEST(Effects, OfAResetThatStateOf8BitsCannotHaveAreToldBeforePlanning) {
  const Args train = {"train",     "mlp", "--data",  "synthetic",
                      "--nonzero", "0.3", "--reset", "new"};
  const CliResult refused = RunCli(train + Args{"--optimizer-state", "u8"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_NE(refused.err.find("--reset: optimizer state in 8 bits is reset as"),
            std::string::npos)
      << refused.err;
  for (const Args& good : {Args{"--optimizer-state", "f16"},
                           Args{"--optimizer-state", "u8", "--reset", "all"}}) {
    const CliResult taken = RunCli(Args{"train", "mlp", "--data", "synthetic",
                                        "--nonzero", "0.3", "--steps", "1"} +
                                   good);
    EXPECT_EQ(taken.exit_code, 0) << taken.err;
  }
}

TEST(Effects, OfSparseOptionsAreTakenWhereABudgetMayChoose) {
  const Args plan = {"plan",    "mlp",    "--budget",  "10MB",
                     "--allow", "sparse", "--pattern", "2x2"};
  EXPECT_EQ(RunCli(plan).exit_code, 0);
  ExpectRefused(plan + Args{"--nonzero", "1"}, 2, "--pattern: is for sparse");
}

// The last resort, at the largest share that fits; what is typed stays.
TEST(Cli, ABudgetTakesSparseWeightsWhereTheyAreAllowed) {
  const Args plan = {"plan",      "wrn-10-1", "--batch", "8",
                     "--threads", "1",        "--json"};
  const auto bytes = [&](const Args& options) -> uint64_t {
    const CliResult result = RunCli(plan + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out)["bytes"]["arena"];
  };
  const auto nonzero = [&](const Args& options) -> double {
    const CliResult result = RunCli(plan + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out)["nonzero"];
  };
  const uint64_t half = bytes({"--nonzero", "0.5", "--checkpoint", "none"});
  const uint64_t fifth = bytes({"--nonzero", "0.2", "--checkpoint", "none"});
  ASSERT_LT(fifth, half);
  const auto within = [](uint64_t budget, const char* allow) {
    return Args{"--checkpoint",         "none",    "--budget",
                std::to_string(budget), "--allow", allow};
  };
  EXPECT_EQ(nonzero(within(2 * half, "sparse")), 1.0);
  EXPECT_EQ(nonzero(within(half, "sparse")), 0.5);
  EXPECT_EQ(nonzero(within(half - 1, "sparse")), 0.3);
  EXPECT_EQ(nonzero(within(fifth, "exact,sparse")), 0.2);
  EXPECT_EQ(nonzero(within(fifth - 1, "sparse")), 0.1);
  EXPECT_EQ(nonzero(within(half, "sparse,f16")), 1.0);
  ExpectRefused(plan + within(half, "sparse") + Args{"--nonzero", "0.9"}, 1,
                "The smallest budget that works");
  ExpectRefused(plan + within(half, "exact"), 1, "smallest budget");
}

TEST(Cli, NamesWhatIsWrongWithSparseOptions) {
  const std::pair<Args, const char*> both[] = {
      {{"--nonzero", "0"}, "'0' is no number above 0 and at most 1"},
      {{"--nonzero", "1.01"}, "'1.01' is no number above 0 and at most 1"},
      {{"--nonzero", "nan"}, "'nan' is no number above 0 and at most 1"},
      {{"--nonzero", "0.3x"}, "'0.3x' is no number above 0 and at most 1"},
      {{"--nonzero", "0.3", "--pattern", "2"}, "'2' is no block of outputs by"},
      {{"--nonzero", "0.3", "--pattern", "0x1"}, "'0x1' is no block"},
      {{"--nonzero", "0.3", "--pattern", "64x64"}, "'64x64' is no block"},
      {{"--nonzero", "0.3", "--pattern", "3x3"},
       "blocks of 3 outputs by 3 inputs do not divide a weight [16, 16, 3, 3]; "
       "name the weights to be sparse (--sparsify)"},
      {{"--nonzero", "0.3", "--sparse-index", "csr"},
       "unknown index 'csr'; it is packed or bitmap"},
      {{"--nonzero", "0.3", "--sparsify", "stem*,nothing"},
       "no weight is called 'nothing' (--sparsify); the weights are stem.w"}};
  for (const auto& [options, says] : both) {
    ExpectBothRefuse("wrn-10-1", options, says);
  }
  // What it advises is what can be done.
  ExpectBothRefuse("lstm-1-16-28", {"--nonzero", "0.3"},
                   "(--sparsify) of fc.weight\n");
  const Args train = {"train",           "wrn-10-1",  "--data",
                      "synthetic-cifar", "--nonzero", "0.3"};
  const std::pair<Args, const char*> cases[] = {
      {{"--rewire", "rigl"}, "--rewire: rigl not in {dsr,set,fixed}"},
      {{"--rewire-every", "0"}, "whole number from 1 to"},
      {{"--prune", "0"}, "above 0 and below 1"},
      {{"--rewire-every", "-1"}, "'-1' is no whole number"},
      {{"--rewire-every", "1.5"}, "'1.5' is no whole number"},
      {{"--prune", "1"}, "'1' is no number above 0 and below 1"},
      {{"--prune", "nan"}, "'nan' is no number above 0 and below 1"},
      {{"--reset", "none"}, "--reset: none not in {all,new}"},
      {{"--reset", "new", "--optimizer-state", "u8"},
       "its blocks share scales. Leave out --reset new"}};
  for (const auto& [options, says] : cases) {
    ExpectRefused(train + options, 2, says);
  }
}

TEST(Effects, OfALossScaleAreNoneInF32) {
  const Args train = {"train", "mlp",     "--data", "synthetic",   "--steps",
                      "1",     "--batch", "10",     "--loss-scale"};
  for (const char* rule : {"dynamic", "none", "1024"}) {
    ExpectRefused(train + Args{rule}, 2,
                  "--loss-scale: is for activations or gradients in 16 bits");
    ExpectRefused(train + Args{rule, "--parameters", "f16", "--gradients",
                               "f32", "--activations", "f32"},
                  2, "--loss-scale: is for activations or gradients");
  }
  for (const Args& good :
       {Args{"--precision", "f16"}, Args{"--activations", "bf16"},
        Args{"--gradients", "f16"},
        Args{"--budget", "1GB", "--allow", "f16"}}) {
    EXPECT_EQ(RunCli(train + Args{"none"} + good).exit_code, 0);
  }
}

TEST(Effects, OfADataDirAreNoneForDataWithoutFiles) {
  const TestFolder folder;
  const Args there = {"--data-dir", folder.path()};
  for (const char* name : {"synthetic", "synthetic-cifar"}) {
    const std::string says = "'" + std::string(name) + "' is computed";
    ExpectRefused(Args{"plan", "mlp", "--data", name} + there, 2, says);
    ExpectRefused(Args{"train", "mlp", "--data", name} + there, 2, says);
    ExpectRefused(Args{"eval", "--from", folder.path(), "--data", name} + there,
                  2, says);
  }
  ExpectRefused(Args{"plan", "mlp"} + there, 2, "--data-dir requires --data");
  // Of a set that has files, it is where they are not.
  ExpectRefused(Args{"plan", "mlp", "--data", "fashion-mnist"} + there, 1,
                folder.path());
}

TEST(Effects, OfExplainAreNoneBesideJson) {
  ExpectRefused({"plan", "mlp", "--json", "--explain"}, 2,
                "--json excludes --explain");
}

// The budget could not be kept: planning would say so, with another code.
TEST(Cli, SaysWhatIsWrongWithOptionsBeforeItPlans) {
  const Args train = {"train", "cnn", "--data", "synthetic", "--budget", "1kB"};
  ExpectRefused(train, 1, "smallest budget that works");
  const std::pair<Args, const char*> cases[] = {
      {{"--schedule", "up"}, "cosine"},
      {{"--resume"}, "--resume needs --out"},
      {{"--overwrite"}, "--overwrite needs --out"},
      {{"--precision", "f16", "--loss-scale", "3"}, "a power of two"},
      {{"--augment", "cutout"}, "none or crop-flip"},
      {{"--batch", "100000"}, "smaller --batch"}};
  for (const auto& [options, says] : cases) {
    ExpectRefused(train + options, 2, says);
  }
}

}  // namespace
}  // namespace thimble
