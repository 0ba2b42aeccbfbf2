// SPDX-License-Identifier: Apache-2.0
#include "recorded_settings.h"

#include <functional>
#include <utility>

#include "thimble/data.h"

namespace thimble::testing {
namespace {

class SettingList {
 public:
  using Change = std::function<void(RecordedSetting&)>;

  // What `thimble train` takes where nothing is said, with three steps.
  RecordedSetting Begin(const std::string& model, RecordedData data,
                        int64_t batch) const {
    RecordedSetting s{.name = model, .model = model, .data = data};
    s.batch = batch;
    s.plan.optimizer =
        Sgd({.momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true});
    s.train.steps = 3;
    s.train.learning_rate = 0.05;
    return s;
  }

  const RecordedSetting& Add(RecordedSetting setting) {
    settings_.push_back(std::move(setting));
    return settings_.back();
  }

  // `base` with a change that gives other bits.
  RecordedSetting Other(const RecordedSetting& base, const std::string& what,
                        const Change& change) {
    RecordedSetting s = base;
    s.name += " " + what;
    s.same_bits_as.clear();
    change(s);
    return Add(std::move(s));
  }

  // `base` with a change that gives the same bits.
  void Same(const RecordedSetting& base, const std::string& what,
            const Change& change) {
    RecordedSetting s = base;
    s.name += " " + what;
    s.same_bits_as = base.name;
    change(s);
    Add(std::move(s));
  }

  void Threads(const RecordedSetting& base, int threads) {
    Same(base, "threads-" + std::to_string(threads),
         [&](auto& s) { s.plan.threads = threads; });
  }

  void Strategies(const RecordedSetting& base,
                  const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      Same(base, name, [&](auto& s) { s.plan.recompute = name; });
    }
  }

  void Budgets(const RecordedSetting& base,
               const std::vector<uint64_t>& budgets) {
    for (const uint64_t budget : budgets) {
      Same(base, "auto-" + std::to_string(budget), [&](auto& s) {
        s.plan.recompute = "auto";
        s.plan.budget = budget;
      });
    }
  }

  void NoSharing(const RecordedSetting& base) {
    Same(base, "inplace-off", [](auto& s) { s.plan.inplace = false; });
    Same(base, "sharing-off", [](auto& s) { s.plan.sharing = false; });
  }

  std::vector<RecordedSetting> Take() { return std::move(settings_); }

 private:
  std::vector<RecordedSetting> settings_;
};

// Optimizers, rates, parts of a batch.
void AddMlp(SettingList& list) {
  const RecordedSetting mlp =
      list.Add(list.Begin("mlp", RecordedData::kGrey, 13));
  list.Threads(mlp, 2);
  list.Threads(mlp, 3);
  list.NoSharing(mlp);
  list.Strategies(mlp, {"sqrt"});
  list.Other(mlp, "seed-7", [](auto& s) { s.train.seed = 7; });
  list.Other(mlp, "momentum-0", [](auto& s) {
    s.plan.optimizer = Sgd({.momentum = 0, .weight_decay = 5e-4f});
  });
  list.Other(mlp, "plain-momentum", [](auto& s) {
    s.plan.optimizer = Sgd({.momentum = 0.9f, .weight_decay = 5e-4f});
  });
  list.Other(mlp, "decay-0", [](auto& s) {
    s.plan.optimizer = Sgd({.momentum = 0.9f, .nesterov = true});
  });
  list.Other(mlp, "constant", [](auto& s) { s.train.schedule = "constant"; });
  list.Other(mlp, "steps", [](auto& s) {
    s.train.schedule = "steps:0.3=0.2,0.6=0.04";
    s.train.steps = 4;
  });
  list.Other(mlp, "warmup", [](auto& s) { s.train.warmup_steps = 2; });
  const RecordedSetting kept = list.Other(mlp, "keep-last", [](auto& s) {
    s.batch = 40;  // the third batch has 16 images
    s.images.keep_last = true;
    s.train.steps = 4;
  });
  list.Other(kept, "microbatch-10", [](auto& s) { s.plan.microbatch = 10; });
  const RecordedSetting dropout =
      list.Other(mlp, "dropout microbatch-5", [](auto& s) {
        s.dropout = 0.5;
        s.batch = 20;
        s.plan.microbatch = 5;
      });
  list.Threads(dropout, 2);
}

// Pooling, biases, batch norms on an odd size.
void AddCnn(SettingList& list) {
  const RecordedSetting cnn =
      list.Add(list.Begin("cnn", RecordedData::kGrey, 13));
  list.Threads(cnn, 2);
  list.Threads(cnn, 3);
  list.NoSharing(cnn);
  list.Strategies(cnn, {"residual-2", "recursive-2", "revolve-2"});
  list.Same(cnn, "two-pass", [](auto& s) { s.plan.two_pass = true; });
  list.Other(cnn, "unfused", [](auto& s) { s.plan.fuse = false; });
  list.Other(cnn, "crop-flip",
             [](auto& s) { s.images.augment = Augment::kCropFlip; });
  list.Other(cnn, "dropout", [](auto& s) { s.dropout = 0.25; });
  const RecordedSetting kept = list.Other(cnn, "keep-last", [](auto& s) {
    s.batch = 40;
    s.images.keep_last = true;
  });
  const RecordedSetting parts = list.Other(
      kept, "microbatch-10", [](auto& s) { s.plan.microbatch = 10; });
  list.Threads(parts, 2);
  list.Other(kept, "ghost-10", [](auto& s) { s.plan.ghost_batch = 10; });
  list.Other(kept, "microbatch-20 ghost-5", [](auto& s) {
    s.plan.microbatch = 20;
    s.plan.ghost_batch = 5;
  });
}

// Residual blocks: every strategy, fused or not.
void AddWrn(SettingList& list) {
  RecordedSetting wrn = list.Begin("wrn-16-1", RecordedData::kColour, 4);
  wrn.images.augment = Augment::kCropFlip;
  wrn.images.keep_last = true;  // the third batch has 2 images
  list.Add(wrn);
  list.Threads(wrn, 2);
  list.Threads(wrn, 3);
  list.NoSharing(wrn);
  list.Strategies(
      wrn, {"no-bn", "every-2", "residual-1", "residual-2", "residual-2*",
            "sqrt", "recursive-2", "revolve", "revolve-2"});
  list.Budgets(wrn, {3'249'728, 3'600'000, 3'900'000});
  list.Same(wrn, "two-pass", [](auto& s) { s.plan.two_pass = true; });
  list.Same(wrn, "two-pass auto", [](auto& s) {
    s.plan.two_pass = true;
    s.plan.recompute = "auto";
    s.plan.budget = 2'987'584;
  });
  const RecordedSetting plain =
      list.Other(wrn, "unfused", [](auto& s) { s.plan.fuse = false; });
  list.Threads(plain, 2);
  list.Strategies(plain, {"no-bn", "residual-2*", "revolve"});
  const RecordedSetting dropout =
      list.Other(wrn, "dropout", [](auto& s) { s.dropout = 0.3; });
  list.Strategies(dropout, {"residual-2*", "revolve"});
}

// Parts of a batch where convolutions and norms are fused, and other widths.
void AddWrnInParts(SettingList& list) {
  RecordedSetting wrn = list.Begin("wrn-10-1", RecordedData::kColour, 4);
  wrn.images.keep_last = true;
  list.Add(wrn);
  const RecordedSetting parts =
      list.Other(wrn, "microbatch-2", [](auto& s) { s.plan.microbatch = 2; });
  list.Threads(parts, 2);
  list.Same(parts, "allow-microbatch", [](auto& s) {
    s.plan.microbatch = 0;
    s.plan.recompute = "auto";
    s.plan.budget = 1'700'000;
    s.plan.allow_microbatch = true;
    s.plan.min_microbatch = 1;
  });
  const RecordedSetting ghost =
      list.Other(wrn, "ghost-2", [](auto& s) { s.plan.ghost_batch = 2; });
  list.Threads(ghost, 2);
  list.Strategies(ghost, {"residual-1"});
  list.Same(ghost, "two-pass", [](auto& s) { s.plan.two_pass = true; });
  list.Other(ghost, "unfused", [](auto& s) { s.plan.fuse = false; });
  RecordedSetting grey = list.Begin("wrn-10-0.5", RecordedData::kGrey, 6);
  list.Add(grey);
  list.Other(grey, "unfused", [](auto& s) { s.plan.fuse = false; });
  RecordedSetting wide = list.Begin("wrn-28-2", RecordedData::kColour, 4);
  wide.train.steps = 2;
  list.Add(wide);
}

void AddResnets(SettingList& list) {
  const RecordedSetting basic =
      list.Add(list.Begin("resnet-20", RecordedData::kColour, 2));
  list.Threads(basic, 2);
  list.Strategies(basic, {"every-2"});
  list.Other(basic, "unfused", [](auto& s) { s.plan.fuse = false; });
  // The least depth with bottlenecks.
  RecordedSetting deep = list.Begin("resnet-164", RecordedData::kGrey, 3);
  deep.train.steps = 2;
  deep.train.learning_rate = 0.001;
  list.Add(deep);
  list.Same(deep, "residual-2* threads-2", [](auto& s) {
    s.plan.recompute = "residual-2*";
    s.plan.threads = 2;
  });
  list.Other(deep, "unfused", [](auto& s) { s.plan.fuse = false; });
  RecordedSetting large =
      list.Begin("resnet-imagenet-14", RecordedData::kColour, 4);
  large.train.steps = 2;
  large.train.learning_rate = 0.001;
  large.plan.threads = 2;
  large.plan.recompute = "residual-1";
  list.Add(large);
}

void AddLstms(SettingList& list) {
  const RecordedSetting one =
      list.Add(list.Begin("lstm-1-16-14", RecordedData::kGrey, 13));
  list.Threads(one, 2);
  list.Strategies(one, {"every-2", "sqrt", "revolve-2"});
  const RecordedSetting two =
      list.Add(list.Begin("lstm-2-9-28", RecordedData::kGrey, 13));
  list.Threads(two, 3);
  list.NoSharing(two);
  list.Strategies(two, {"sqrt", "recursive-2", "revolve"});
  list.Budgets(two, {60'000, 100'000, 195'000});
  list.Other(two, "keep-last microbatch-10", [](auto& s) {
    s.batch = 40;
    s.plan.microbatch = 10;
    s.images.keep_last = true;
  });
}

// What users plan, too large to train here.
void AddPlansAlone(SettingList& list) {
  const auto plan = [&](const std::string& model, int64_t batch,
                        const std::string& strategy, uint64_t budget = 0) {
    RecordedSetting s = list.Begin(model, RecordedData::kColour, batch);
    s.name += " planned " + strategy;
    s.train.steps = 0;
    s.plan.threads = 2;
    s.plan.recompute = strategy;
    if (budget > 0) {
      s.plan.budget = budget;
      s.name += "-" + std::to_string(budget);
    }
    list.Add(std::move(s));
  };
  for (const char* strategy : {"none", "residual-2*", "sqrt", "recursive-2"}) {
    plan("wrn-28-2", 100, strategy);
  }
  plan("wrn-28-2", 100, "auto", 84'000'000);
  plan("resnet-110", 128, "none");
  plan("resnet-imagenet-50", 32, "residual-1");
  // Arenas above their lower bound.
  plan("resnet-imagenet-50", 32, "auto", 770'178'640);
  plan("lstm-2-64-56", 100, "recursive-2");
}

}  // namespace

std::vector<RecordedSetting> AllRecordedSettings() {
  SettingList list;
  AddMlp(list);
  AddCnn(list);
  AddWrn(list);
  AddWrnInParts(list);
  AddResnets(list);
  AddLstms(list);
  AddPlansAlone(list);
  return list.Take();
}

}  // namespace thimble::testing
