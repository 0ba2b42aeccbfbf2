// SPDX-License-Identifier: Apache-2.0
//
// Every form that an op takes, collected from the plans of the oracle's
// samples: what holds for each of them, and that none of src/ops is missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "graph/fingerprint.h"
#include "graph/op.h"
#include "planner/fuse.h"
#include "planner/program.h"
#include "planner/two_pass.h"
#include "sample_nets.h"
#include "thimble/dtype.h"
#include "thimble/plan.h"

namespace thimble::testing {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16,
                             DType::kU8,  DType::kI32, DType::kBit};

DType DTypeOf(const ValueSpec& spec) { return spec.storage.dtype; }
ValueSpec WithDType(ValueSpec spec, DType dtype) {
  spec.storage = dtype;
  return spec;
}

std::string TextOf(const ValueSpec& spec) {
  return spec.shape.ToString() + " " + DTypeName(DTypeOf(spec));
}
std::string TextOf(const std::vector<ValueSpec>& specs) {
  std::string text;
  for (const ValueSpec& spec : specs) text += " " + TextOf(spec);
  return text;
}

// An op with inputs that it takes, and what it makes of them.
struct OpForm {
  std::shared_ptr<const OpDef> def;
  std::vector<ValueSpec> inputs, outputs;
};

// By texts, so that each is there once.
using OpForms = std::map<std::string, OpForm>;

void Collect(const Graph& graph, OpForms& forms) {
  for (const Op& op : graph.ops()) {
    OpForm form{op.def, graph.InputSpecs(op), graph.OutputSpecs(op)};
    const std::string text = std::string(op.def->name()) + " (" +
                             op.def->Attributes() + ") of" +
                             TextOf(form.inputs);
    const auto [known, is_new] = forms.emplace(text, form);
    if (is_new) continue;
    // Ops of equal attributes are one op.
    const OpForm& other = known->second;
    EXPECT_EQ(TextOf(other.outputs), TextOf(form.outputs)) << text;
    EXPECT_EQ(other.def->Flops(form.inputs, form.outputs),
              form.def->Flops(form.inputs, form.outputs))
        << text;
    EXPECT_EQ(other.def->InPlace().size(), form.def->InPlace().size()) << text;
  }
}

std::vector<PlanOptions> AllWaysToPlan(const Model& model) {
  std::vector<PlanOptions> all = {{},
                                  {.fuse = false},
                                  {.microbatch = 2},
                                  {.microbatch = 2, .fuse = false},
                                  {.fuse = false, .recompute = "recursive-1"},
                                  {.recompute = "recursive-1"}};
  if (!HasRunningStatistics(model)) return all;
  all.push_back({.ghost_batch = 2});
  all.push_back({.ghost_batch = 2, .fuse = false});
  return all;
}

class OpFormsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ForEachSampleNet(4, kAllAround, [](const SampleNet& net) {
      Collect(net.model.graph, forms_);
      const Model fused = planner::Fuse(net.model);
      Collect(fused.graph, forms_);
      // Also where that does not lower the peak.
      const planner::Program program = planner::Differentiate(fused, {}, 1);
      Collect(InTwoPasses(program, planner::FindTwoPassPairs(program)).graph,
              forms_);
      for (const PlanOptions& options : AllWaysToPlan(net.model)) {
        const Result<Plan> plan = MakePlan(net.model, options);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        Collect(plan->graph(), forms_);
      }
      CollectRewiring(net.model);
    });
  }
  static void TearDownTestSuite() { forms_.clear(); }

  // Of a model whose weights can all be sparse. Its other ops are the same.
  static void CollectRewiring(const Model& model) {
    const auto plan =
        MakePlan(model, {.sparse = {.nonzero = 0.5, .weights = {"*"}}});
    if (!plan.ok()) return;
    const auto text = [](const OpDef& def) {
      return std::string(def.name()) + " (" + def.Attributes() + ")";
    };
    const Graph& graph = plan->graph();
    for (const Op& op : graph.ops()) {
      if (op.def->name() != "rewire") continue;
      forms_[text(*op.def)] = {op.def, graph.InputSpecs(op),
                               graph.OutputSpecs(op)};
    }
  }

  static inline OpForms forms_;
};

// ---- That none is missing

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// All of src/ops' headers.
std::vector<std::string> OpHeaders() {
  std::vector<std::string> texts;
  for (const auto& file :
       std::filesystem::directory_iterator(THIMBLE_SOURCE_DIR "/src/ops")) {
    if (file.path().extension() == ".h") texts.push_back(ReadText(file));
  }
  return texts;
}

size_t CountIn(const std::string& text, const std::regex& pattern) {
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), pattern),
                    std::sregex_iterator()));
}

TEST_F(OpFormsTest, EveryClassOfOpsIsMet) {
  std::set<std::string> met;
  for (const auto& [text, form] : forms_) met.emplace(form.def->name());
  const std::regex definition(R"(class \w+ final : public OpDef \{)");
  const std::regex name(
      R"re(name\(\) const override \{\s*return "([^"]+)";)re");
  size_t classes = 0;
  std::set<std::string> names;
  for (const std::string& text : OpHeaders()) {
    classes += CountIn(text, definition);
    ASSERT_EQ(CountIn(text, std::regex(": public OpDef")),
              CountIn(text, definition));
    for (std::sregex_iterator it(text.begin(), text.end(), name), end;
         it != end; ++it) {
      names.insert((*it)[1]);
    }
  }
  ASSERT_EQ(names.size(), classes) << "two classes of one name, or one unread";
  EXPECT_GT(classes, 40u);
  names.erase("last-rows");  // only where nothing is learned: last_rows_test
  for (const std::string& op : names) {
    EXPECT_TRUE(met.contains(op))
        << "no sample of tests/oracle has a plan with '" << op
        << "': add an entry, or a sample that leads to this form";
  }
}

// Every data member of a class of ops is part of what the class says of itself.
TEST(Attributes, NameEveryMember) {
  const std::regex definition(
      R"(class (\w+) final : public OpDef \{([^]*?)\n\};)");
  const std::regex attributes(
      R"(std::string Attributes\(\) const override \{([^]*?)\})");
  const std::regex member(R"(\n  [\w:<>, ]+ (\w+_)( = [^;]+)?;)");
  size_t members = 0;
  for (const std::string& text : OpHeaders()) {
    for (std::sregex_iterator it(text.begin(), text.end(), definition), end;
         it != end; ++it) {
      const std::string body = (*it)[2];
      std::smatch found;
      std::regex_search(body, found, attributes);
      const std::string said = found.empty() ? "" : found[1].str();
      for (std::sregex_iterator m(body.begin(), body.end(), member); m != end;
           ++m, ++members) {
        EXPECT_NE(said.find((*m)[1]), std::string::npos)
            << (*it)[1] << "::Attributes, in the class itself, must list "
            << (*m)[1];
      }
    }
  }
  EXPECT_GT(members, 60u);
}

TEST(Fingerprint, DiffersBetweenTheSamplesOfAnOp) {
  constexpr Around kPlaces[] = {Around::kRead};
  std::map<std::string, std::string> seen;
  ForEachSampleNet(3, kPlaces, [&](const SampleNet& net) {
    const std::string fingerprint = Fingerprint(net.model.graph);
    const auto [known, is_new] = seen.emplace(fingerprint, net.what);
    EXPECT_TRUE(is_new) << net.what << " and " << known->second;
  });
  ForEachSampleNet(4, kPlaces, [&](const SampleNet& net) {
    EXPECT_EQ(seen[Fingerprint(net.model.graph)], net.what) << "of batch 4";
  });
}

// ---- What holds for each

Result<std::vector<ValueSpec>> InferAs(const OpForm& form, size_t k,
                                       DType dtype) {
  std::vector<ValueSpec> inputs = form.inputs;
  inputs[k] = WithDType(inputs[k], dtype);
  return form.def->Infer(inputs);
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// An input is taken in all float types, or in its own type alone. In every
// other it is refused with a message that names the input and both types. The
// inputs' names, where each has its own.
void ExpectOnlyOwnTypes(const OpForm& form) {
  std::map<std::string, size_t> names;
  for (size_t k = 0; k < form.inputs.size(); ++k) {
    const DType own = DTypeOf(form.inputs[k]);
    int taken = 0;
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE("input " + std::to_string(k) + " as " + DTypeName(dtype));
      const auto made = InferAs(form, k, dtype);
      taken += made.ok() ? 1 : 0;
      if (made.ok()) {
        EXPECT_TRUE(dtype == own || (IsFloat(dtype) && IsFloat(own)));
        continue;
      }
      ASSERT_NE(dtype, own);
      // Of copies, the second input is the one that differs from the first.
      static const std::regex refusal(
          "needs (.+) stored as (f32, f16 or bf16|f32, f16, bf16 or u8 in "
          "blocks of 64|[a-z0-9]+), got ([a-z0-9]+) .*");
      std::smatch found;
      const std::string message = made.status().message();
      ASSERT_TRUE(std::regex_match(message, found, refusal)) << message;
      const bool any_float = found[2].str().starts_with("f32, f16");
      EXPECT_TRUE(!any_float || IsFloat(own)) << message;
      using Types = std::set<std::string>;
      const std::string wanted = any_float ? DTypeName(own) : found[2].str();
      EXPECT_EQ(Types({wanted, found[3]}),
                Types({DTypeName(own), DTypeName(dtype)}))
          << message;
      if (wanted != DTypeName(own)) continue;
      EXPECT_EQ(names.emplace(found[1], k).first->second, k)
          << "the name of another input: " << message;
    }
    EXPECT_TRUE(taken == 1 || taken == 3) << "input " << k << ": " << taken;
  }
}

TEST_F(OpFormsTest, TakeAllFloatTypesOrTheirOwnTypeAlone) {
  for (const auto& [text, form] : forms_) {
    if (form.def->IsView()) continue;  // reads nothing
    SCOPED_TRACE(text);
    ExpectOnlyOwnTypes(form);
    if (HasFailure()) return;
  }
}

TEST_F(OpFormsTest, OverwriteOnlyInputsOfEqualBytesAndViewsNone) {
  int pairs = 0;
  for (const auto& [text, form] : forms_) {
    SCOPED_TRACE(text);
    EXPECT_TRUE(!form.def->IsView() || form.def->InPlace().empty());
    for (const InPlacePair& pair : form.def->InPlace()) {
      ASSERT_LT(pair.input, form.inputs.size());
      ASSERT_LT(pair.output, form.outputs.size());
      EXPECT_EQ(form.inputs[pair.input].bytes(),
                form.outputs[pair.output].bytes())
          << pair.input << ">" << pair.output;
      EXPECT_EQ((form.def->Accumulates() >> pair.output) & 1, 0u)
          << "what is carried is never written over an input";
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 100);
}

TEST_F(OpFormsTest, RepeatToTheSameFirstOutput) {
  int from_saved = 0;
  for (const auto& [text, form] : forms_) {
    SCOPED_TRACE(text);
    const RepeatForm again = form.def->Repeat();
    std::vector<ValueSpec> inputs = form.inputs;
    if (again.reads_saved) {
      inputs.insert(inputs.end(), form.outputs.begin() + 1, form.outputs.end());
      ++from_saved;
    }
    const auto made = again.def->Infer(inputs);
    ASSERT_TRUE(made.ok()) << made.status().message();
    if (form.outputs.empty()) continue;  // an update
    EXPECT_EQ(TextOf((*made)[0]), TextOf(form.outputs[0]));
  }
  EXPECT_GT(from_saved, 0);
}

TEST_F(OpFormsTest, DoNotComputeMoreAgainThanTheyCompute) {
  for (const auto& [text, form] : forms_) {
    SCOPED_TRACE(text);
    const int64_t all = form.def->Flops(form.inputs, form.outputs);
    const int64_t again = form.def->RecomputeFlops(form.inputs, form.outputs);
    EXPECT_GE(again, 0);
    EXPECT_GE(all, again);
  }
}

}  // namespace
}  // namespace thimble::testing
