// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/utf8.h"
#include "text/bleu.h"
#include "text/meaning.h"
#include "thimble/model.h"
#include "thimble/session.h"
#include "thimble/size.h"
#include "thimble/translate.h"
#include "train/mean.h"
#include "train/text_facts.h"
#include "train/weights.h"
#include "translate/decoder.h"
#include "translate/stream.h"

namespace thimble {
namespace translate {

// What the folder of a run keeps beside the weights.
struct Coding {
  std::unique_ptr<SentenceEncoder> source;
  Dictionary target;
  std::string meaning;  // of the tokens of both

  static Result<Coding> Read(const std::string& dir) {
    for (const char* name : {text::kCodesName, text::kDictionaryNames[0],
                             text::kDictionaryNames[1]}) {
      const std::string path = dir + "/" + name;
      TH_ASSIGN_OR_RETURN(const bool is_there, IsThere(path));
      if (is_there) continue;
      return Status::Failed(fmt::format(
          "{} is not there; a run on prepared text keeps codes, source.dict "
          "and target.dict beside its weights: copy them from the folder of "
          "that text",
          path));
    }
    Coding coding;
    TH_ASSIGN_OR_RETURN(coding.source,
                        SentenceEncoder::Open(dir, TextSide::kSource));
    TH_ASSIGN_OR_RETURN(coding.target, Dictionary::Read(dir + "/target.dict"));
    TH_ASSIGN_OR_RETURN(const text::Meaning meaning, text::ReadMeaning(dir));
    coding.meaning = meaning.digest;
    return coding;
  }

  Status Encode(std::string_view line, std::vector<int32_t>* tokens) {
    if (!IsUtf8(line)) {
      return Status::Failed("is not UTF-8; give text of a sentence a line");
    }
    if (line.find('\0') != std::string_view::npos) {
      return Status::Failed("has a NUL byte; give text of a sentence a line");
    }
    source->Encode(line, tokens);
    return Status::Ok();
  }
};

}  // namespace translate

namespace {

using translate::BeamOptions;
using translate::BeamSearch;
using translate::Coding;
using translate::Decoder;
using translate::Window;

constexpr int64_t kWidestBeam = 256;
constexpr int64_t kMostAtOnce = 1 << 16;
constexpr int64_t kLongestText = 1 << 16;  // of either language, in tokens

Status CheckBetween(const char* field, int64_t value, int64_t least,
                    int64_t most) {
  if (value >= least && value <= most) return Status::Ok();
  return Status::Usage(
      fmt::format("TranslateOptions::{} is from {} to {}, got {}", field, least,
                  most, value));
}

struct Built {
  Plan plan;
  int64_t batch;
  uint64_t search_bytes;
  uint64_t bytes() const { return plan.arena_bytes() + search_bytes; }
};

// What the plans of a translator have in common.
struct Planning {
  const std::string& dir;
  train::WeightsInfo info;
  ModelOptions model;
  BeamOptions beam;
  TranslateOptions options;

  Result<Built> Of(int64_t batch) const {
    auto network = BuildTranslator(
        info.model, model, translate::RoomFor(beam, batch, options.max_source));
    if (!network.ok()) {
      return Status::Failed(fmt::format(
          "{} holds a network called '{}', which cannot be built "
          "here to translate: {}",
          train::WeightsPath(dir), info.model, network.status().message()));
    }
    PlanOptions plan_options;
    plan_options.training = false;
    plan_options.precision = info.precision;
    // A mean has every weight that one of them keeps.
    if (options.average == 0) plan_options.sparse = info.sparse;
    plan_options.threads = options.threads;
    TH_ASSIGN_OR_RETURN(Plan plan, MakePlan(*network, plan_options));
    return Built{std::move(plan), batch, Decoder::BytesOf(beam, batch)};
  }

  // As many sentences at once as are asked for and the budget has room for.
  Result<Built> Most() const {
    TH_ASSIGN_OR_RETURN(Built most, Of(options.batch));
    if (!options.budget.has_value() || most.bytes() <= *options.budget) {
      return most;
    }
    TH_ASSIGN_OR_RETURN(Built best, Of(1));
    if (best.bytes() > *options.budget) return Refuse(best);
    int64_t fits = 1, too_many = options.batch;
    while (too_many - fits > 1) {
      const int64_t middle = fits + (too_many - fits) / 2;
      TH_ASSIGN_OR_RETURN(Built built, Of(middle));
      if (built.bytes() <= *options.budget) {
        fits = middle;
        best = std::move(built);
      } else {
        too_many = middle;
      }
    }
    return best;
  }

  Status Refuse(const Built& least) const {
    return Status::Failed(fmt::format(
        "translating with {} needs {} bytes for one sentence at a time, the "
        "budget is {}: the arena takes {}, the search beside it {}; a smaller "
        "TranslateOptions::beam, TranslateOptions::max_length or "
        "TranslateOptions::max_source, or one thread, takes less",
        info.model, least.bytes(), FormatBytes(*options.budget),
        least.plan.arena_bytes(), least.search_bytes));
  }
};

// Whether the network was trained on these tokens.
Status CheckCoding(const Planning& planning, const Coding& coding) {
  const int64_t in_weights[] = {planning.model.source_vocabulary,
                                planning.model.target_vocabulary};
  const int64_t here[] = {coding.source->dictionary().size(),
                          coding.target.size()};
  for (size_t side = 0; side < kTextSides; ++side) {
    if (here[side] == in_weights[side]) continue;
    return Status::Failed(fmt::format(
        "{}/{} has {} tokens, and the network of {} knows {}: it was trained "
        "with another dictionary",
        planning.dir, text::kDictionaryNames[side], here[side],
        train::WeightsPath(planning.dir), in_weights[side]));
  }
  // Files of other programs do not tell.
  const auto meaning = planning.info.facts.find(train::kTextFact);
  if (meaning == planning.info.facts.end() ||
      meaning->second == coding.meaning) {
    return Status::Ok();
  }
  return Status::Failed(fmt::format(
      "codes and dictionaries in {} are others than those that the network of "
      "{} was trained with",
      planning.dir, train::WeightsPath(planning.dir)));
}

}  // namespace

Status CheckTranslateOptions(const TranslateOptions& options) {
  TH_RETURN_IF_ERROR(CheckBetween("beam", options.beam, 1, kWidestBeam));
  TH_RETURN_IF_ERROR(CheckBetween("nbest", options.nbest, 0, kWidestBeam));
  TH_RETURN_IF_ERROR(
      CheckBetween("max_length", options.max_length, 1, kLongestText));
  TH_RETURN_IF_ERROR(CheckBetween("batch", options.batch, 1, kMostAtOnce));
  TH_RETURN_IF_ERROR(
      CheckBetween("max_source", options.max_source, 1, kLongestText));
  if (options.nbest > options.beam) {
    return Status::Usage(fmt::format(
        "a search with TranslateOptions::beam {} finds so many translations, "
        "fewer than the {} of TranslateOptions::nbest",
        options.beam, options.nbest));
  }
  if (!std::isfinite(options.length_penalty) || options.length_penalty < 0) {
    return Status::Usage(
        fmt::format("TranslateOptions::length_penalty is from 0 on, got {}",
                    options.length_penalty));
  }
  if (options.average < 0) {
    return Status::Usage("a mean of fewer than 0 epochs cannot be taken");
  }
  return Status::Ok();
}

namespace {

// The pairs of a split, one after the other.
class RecordReader {
 public:
  RecordReader(const TextData& data, TextSplit split)
      : data_(data), split_(split) {}

  bool has_more() const { return at_ < data_.bytes(split_); }
  // Appends the source's tokens, and puts the target's text in place. What is
  // unknown there is a word that no translation has.
  Status Next(const Dictionary& target, std::vector<int32_t>* source,
              std::string* text) {
    std::byte head[TextRecord::kHeadBytes];
    TH_RETURN_IF_ERROR(data_.Read(split_, at_, head));
    const TextRecord record = TextRecord::At(head);
    tokens_.resize(size_t{record.source} + record.target);
    TH_RETURN_IF_ERROR(data_.Read(split_, at_ + TextRecord::kHeadBytes,
                                  std::as_writable_bytes(std::span(tokens_))));
    at_ += record.bytes();
    source->insert(source->end(), tokens_.begin(),
                   tokens_.begin() + record.source);
    words_.assign(tokens_.begin() + record.source, tokens_.end());
    std::ranges::replace(words_, kUnknownToken, 0);
    *text = target.Join(words_);
    return Status::Ok();
  }

 private:
  const TextData& data_;
  TextSplit split_;
  uint64_t at_ = 0;
  std::vector<uint16_t> tokens_;
  std::vector<int32_t> words_;
};

}  // namespace

struct Translator::Impl {
  Impl(std::string from, const TranslateOptions& asked, Coding read,
       Built built)
      : dir(std::move(from)),
        options(asked),
        coding(std::move(read)),
        search_bytes(built.search_bytes),
        plan(std::move(built.plan)),
        window(built.batch) {}

  // Whether the data's tokens mean what they do here.
  Status CheckData(const TextData& data) const {
    if (data.meaning() == coding.meaning) return Status::Ok();
    return Status::Failed(fmt::format(
        "'{}' has other codes or dictionaries than {}: its tokens are not "
        "those "
        "that the network was trained on; prepare the text with the ones of {}",
        data.name(), dir, dir));
  }

  std::string dir;
  TranslateOptions options;
  Coding coding;
  uint64_t search_bytes;
  Plan plan;
  std::unique_ptr<Session> session;
  std::unique_ptr<Decoder> decoder;
  Window window;
};

Result<std::unique_ptr<Translator>> Translator::Open(
    const std::string& dir, const TranslateOptions& options) {
  TH_RETURN_IF_ERROR(CheckTranslateOptions(options));
  Planning planning = {.dir = dir, .options = options};
  TH_ASSIGN_OR_RETURN(planning.info, train::ReadWeightsInfo(dir));
  SetBuildOptions(planning.info.build_options, planning.model);
  TH_ASSIGN_OR_RETURN(Coding coding, Coding::Read(dir));
  TH_RETURN_IF_ERROR(CheckCoding(planning, coding));
  planning.beam = {
      .beam = options.beam,
      .length_penalty = options.length_penalty,
      .max_length = options.max_length,
      .vocabulary = planning.model.target_vocabulary,
      .end = kEndToken,
      .first_word = kUnknownToken,
      .end_word = static_cast<int32_t>(kFirstWord + coding.target.words())};
  TH_ASSIGN_OR_RETURN(Built built, planning.Most());
  auto impl =
      std::make_unique<Impl>(dir, options, std::move(coding), std::move(built));
  TH_ASSIGN_OR_RETURN(impl->session, Session::Create(impl->plan, {}));
  TH_RETURN_IF_ERROR(
      train::LoadWeightsOrMean(dir, options.average, *impl->session));
  impl->decoder = std::make_unique<Decoder>(*impl->session, planning.beam);
  return std::unique_ptr<Translator>(new Translator(std::move(impl)));
}

Translator::Translator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Translator::~Translator() = default;

const Plan& Translator::plan() const { return impl_->plan; }
uint64_t Translator::search_bytes() const { return impl_->search_bytes; }
int64_t Translator::batch() const {
  return impl_->plan.graph().axes()[2].capacity;
}

Result<TranslateSummary> Translator::Translate(int in, int out) {
  const auto encode = [this](std::string_view line,
                             std::vector<int32_t>* tokens) {
    return impl_->coding.Encode(line, tokens);
  };
  const auto decode = [this](std::span<const int32_t> tokens,
                             std::string* line) {
    *line += impl_->coding.target.Join(tokens);
  };
  return translate::TranslateLines(*impl_->decoder, {encode, decode},
                                   impl_->options, impl_->window, in, out);
}

Result<BleuSummary> Translator::Bleu(const TextData& data, TextSplit split) {
  if (!data.has(split)) {
    return Status::Usage(fmt::format("'{}' has no {} split to translate",
                                     data.name(), TextSplitName(split)));
  }
  TH_RETURN_IF_ERROR(impl_->CheckData(data));
  text::BleuCounts counts;
  Window& window = impl_->window;
  std::vector<std::string> references;
  std::vector<std::string> translations;
  RecordReader reader(data, split);
  while (reader.has_more()) {
    window.Clear();
    references.clear();
    while (reader.has_more() && !window.is_full()) {
      std::string& reference = references.emplace_back();
      TH_RETURN_IF_ERROR(
          reader.Next(impl_->coding.target, window.tokens(), &reference));
      window.Close();
      if (std::cmp_less_equal(window[window.size() - 1].size(),
                              impl_->options.max_source)) {
        continue;
      }
      return Status::Failed(
          fmt::format("'{}' has a sentence of {} tokens, more than the {} of "
                      "TranslateOptions::max_source",
                      data.name(), window[window.size() - 1].size(),
                      impl_->options.max_source));
    }
    translations.assign(window.size(), "");
    TH_RETURN_IF_ERROR(window.Translate(
        *impl_->decoder, /*least=*/2, [&](size_t i, const BeamSearch& search) {
          translations[i] = impl_->coding.target.Join(
              search.TokensOf(search.found().front()));
        }));
    for (size_t i = 0; i < window.size(); ++i) {
      counts.Add(translations[i], references[i]);
    }
  }
  const text::Bleu score = counts.Score();
  BleuSummary summary{.sentences = score.sentences,
                      .bleu = score.bleu,
                      .brevity_penalty = score.brevity_penalty,
                      .translated_words = score.hypothesis_words,
                      .reference_words = score.reference_words};
  std::ranges::copy(score.precisions, summary.precisions);
  return summary;
}

}  // namespace thimble
