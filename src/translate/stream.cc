// SPDX-License-Identifier: Apache-2.0
#include "translate/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/check.h"

namespace thimble::translate {
namespace {

constexpr size_t kGroupsInWindow = 16;
constexpr size_t kTokensOfSentence = 64;  // at which a window is full

// The next lines, until the window is full or the input rests. False where none
// is left. Where a line is wrong, those before it are in the window.
Result<bool> ReadWindow(LineReader& reader, const LineCoding& coding,
                        int64_t longest, Window& window) {
  window.Clear();
  while (!window.is_full() && (window.size() == 0 || reader.IsReady())) {
    std::string_view line;
    TH_ASSIGN_OR_RETURN(const bool has_line, reader.Next(&line));
    if (!has_line) return false;
    const size_t before = window.tokens()->size();
    const Status status = coding.encode(line, window.tokens());
    const size_t tokens = window.tokens()->size() - before;
    if (status.ok() && std::cmp_less_equal(tokens, longest)) {
      window.Close();
      continue;
    }
    window.Drop();
    if (!status.ok()) {
      return Status::Failed(fmt::format("line {} of the input {}",
                                        reader.lines(), status.message()));
    }
    return Status::Failed(fmt::format(
        "line {} of the input has {} tokens, its end counted, more than the {} "
        "of TranslateOptions::max_source; split it, or give a larger one",
        reader.lines(), tokens, longest));
  }
  return true;
}

// What is written of a sentence.
void Write(const BeamSearch& search, const LineCoding& coding, int64_t nbest,
           int64_t line, std::string* text) {
  const auto found = search.found();
  if (nbest == 0) {
    coding.decode(search.TokensOf(found[0]), text);
    *text += '\n';
    return;
  }
  for (const auto& one :
       found.first(std::min(found.size(), static_cast<size_t>(nbest)))) {
    fmt::format_to(std::back_inserter(*text), "{}\t{:.4f}\t", line, one.score);
    coding.decode(search.TokensOf(one), text);
    *text += '\n';
  }
}

}  // namespace

Window::Window(int64_t at_once)
    : most_(kGroupsInWindow * static_cast<size_t>(at_once)) {}

void Window::Clear() {
  tokens_.clear();
  ends_.clear();
}

bool Window::is_full() const {
  return ends_.size() == most_ || tokens_.size() >= most_ * kTokensOfSentence;
}

std::span<const int32_t> Window::operator[](size_t i) const {
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::span(tokens_).subspan(begin, ends_[i] - begin);
}

Status Window::Translate(Decoder& decoder, size_t least,
                         const Decoder::Found& found) {
  order_.clear();
  for (size_t i = 0; i < size(); ++i) {
    if ((*this)[i].size() >= least) order_.push_back(i);
  }
  std::ranges::sort(order_, [this](size_t a, size_t b) {
    const size_t of_a = (*this)[a].size(), of_b = (*this)[b].size();
    return of_a != of_b ? of_a > of_b : a < b;
  });
  sources_.clear();
  for (size_t i : order_) sources_.push_back((*this)[i]);
  return decoder.Translate(sources_, [&](size_t i, const BeamSearch& search) {
    found(order_[i], search);
  });
}

Result<TranslateSummary> TranslateLines(Decoder& decoder,
                                        const LineCoding& coding,
                                        const TranslateOptions& options,
                                        Window& window, int in, int out) {
  TranslateSummary summary;
  LineReader reader(in);
  std::vector<std::string> texts;
  std::string text;
  for (;;) {
    const auto more = ReadWindow(reader, coding, options.max_source, window);
    const int64_t first = summary.lines + 1;
    texts.resize(std::max(texts.size(), window.size()));
    for (size_t i = 0; i < window.size(); ++i) {
      texts[i].clear();
      // Of an empty line, which is an end alone.
      if (options.nbest > 0) {
        texts[i] =
            fmt::format("{}\t{:.4f}\t", first + static_cast<int64_t>(i), 0.0);
      }
      texts[i] += '\n';
      summary.source_tokens += std::ssize(window[i]) - 1;
    }
    TH_RETURN_IF_ERROR(window.Translate(
        decoder, /*least=*/2, [&](size_t i, const BeamSearch& search) {
          texts[i].clear();
          Write(search, coding, options.nbest, first + static_cast<int64_t>(i),
                &texts[i]);
          summary.target_tokens += search.found()[0].length;
        }));
    text.clear();
    for (size_t i = 0; i < window.size(); ++i) text += texts[i];
    TH_RETURN_IF_ERROR(WriteText(out, text));
    summary.lines += static_cast<int64_t>(window.size());
    if (!more.ok()) return more.status();
    if (!*more) return summary;
  }
}

}  // namespace thimble::translate
