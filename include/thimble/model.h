// SPDX-License-Identifier: Apache-2.0
//
// The networks that come with Thimble, by name (docs/models.md). Pure
// functions, safe from every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/graph.h"
#include "thimble/network.h"
#include "thimble/status.h"

namespace thimble {

struct ModelOptions {
  int64_t batch = 100;
  ImageLayer images;  // as the data set has them
  int64_t classes = 10;
  // The share of values that dropouts drop in training; 0 builds none. They
  // stand before the last layer of mlp and cnn, between the convolutions of
  // each block of wrn-D-K, and behind each part of dynamicconv-…, whose inner
  // ones drop a third of it. Other models refuse it. Unset: 0.3 for the last of
  // them, else 0.
  std::optional<double> dropout;
  // Tokens that models of text know, the special ones counted.
  int64_t source_vocabulary = 8848;
  int64_t target_vocabulary = 6632;
};

// The options that are not batch, images or classes, by their names here: what
// a file must hold to build the model again.
BuildOptions BuildOptionsOf(const ModelOptions& options);
// The other way. Names that are not among them are passed over.
void SetBuildOptions(const BuildOptions& from, ModelOptions& options);

// `name` is one of ModelNames(), or follows the pattern of one: wrn-28-2
// follows wrn-D-K. An unknown name is an error that lists the known ones.
Result<Model> BuildModel(const std::string& name, const ModelOptions& options);

// What a network that translates has room for at once.
struct TranslatorRoom {
  int64_t sentences = 1;  // of the source
  int64_t source_tokens = 1;
  int64_t hypotheses = 1;     // beginnings of translations
  int64_t target_tokens = 1;  // of all of them
};

// The network of a translation model in a form that has no loss and reads the
// beginnings of translations, several for each sentence: what comes next? Its
// weights have the names, the shapes and the order of BuildModel's.
//
// Feeds: `source` and `source_ends`; `target` and `target_ends`, the
// hypotheses, one sentence's behind the other's, each beginning with the token
// that ends sentences; `target_of_source_ends`, where those of each source
// sentence end. Outputs: `read`, what was made of the source and all that the
// rest needs of it (Session::EvaluateBehind), and `logits` [hypotheses, target
// vocabulary] of the token behind each hypothesis, f32. Axes: tokens of the
// target, its sentences, tokens of the source, its sentences.
//
// `options.batch` is not looked at. Fails for models that do not translate.
Result<Model> BuildTranslator(const std::string& name,
                              const ModelOptions& options,
                              const TranslatorRoom& room);

struct ModelName {
  std::string_view name;
  std::string_view what;
};
std::vector<ModelName> ModelNames();

// Settings that train a model well, and what it is made for.
struct TrainingPreset {
  // Of the pairs of sentences of a TextData, which batches count the tokens of;
  // else of images, as follows.
  bool is_of_text = false;
  ImageLayer images;
  int64_t classes = 10;
  int64_t batch = 100;
  std::string optimizer = "sgd";  // or adam, adamw
  double beta2 = 0.999;           // Adam's
  double weight_decay = 5e-4;
  double learning_rate = 0.1;
  std::string schedule = "cosine";
  int64_t epochs = 10;
  int64_t warmup_steps = 0;
};
// For a name that BuildModel does not know: the defaults above.
TrainingPreset PresetOf(const std::string& name);

}  // namespace thimble
