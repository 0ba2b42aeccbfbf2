// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "options.h"
#include "thimble/size.h"
#include "thimble/text.h"
#include "thimble/weights_file.h"

namespace thimble::cli {
namespace {

struct InspectFlags {
  std::string path;
  bool json = false;
};

// Columns as wide as their widest cell; those after the first `left` are
// numbers.
class Table {
 public:
  explicit Table(size_t left) : left_(left) {}

  void Row(std::vector<std::string> cells) {
    widths_.resize(std::max(widths_.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) {
      widths_[i] = std::max(widths_[i], cells[i].size());
    }
    rows_.push_back(std::move(cells));
  }
  std::string Text() const {
    std::string text;
    for (const auto& cells : rows_) {
      std::string line;
      for (size_t i = 0; i < cells.size(); ++i) {
        const std::string space(widths_[i] - cells[i].size(), ' ');
        line += "  " + (i < left_ ? cells[i] + space : space + cells[i]);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  size_t left_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t extent : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "[" + text + "]";
}

std::string ShareText(int64_t part, int64_t all) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f%%",
                100.0 * static_cast<double>(part) / static_cast<double>(all));
  return text;
}

// "wrn-28-2 after step 4689"
std::string TitleOf(const WeightsFile& file) {
  std::string text = file.model.empty() ? "no model named" : file.model;
  if (file.steps.has_value()) {
    text += " after step " + std::to_string(*file.steps);
  }
  return Printable(text);
}

std::string SparseText(const StoredSparseWeights& sparse) {
  Table table(2);
  table.Row(
      {"sparse weight", "shape", "kept", "of", "density", "bytes", "dense"});
  for (const StoredSparseWeight& weight : sparse.weights) {
    table.Row({Printable(weight.name), weight.shape.ToString(),
               std::to_string(weight.kept), std::to_string(weight.blocks),
               ShareText(weight.kept, weight.blocks),
               std::to_string(weight.bytes),
               std::to_string(weight.dense_bytes)});
  }
  table.Row({"all of them", "", std::to_string(sparse.kept),
             std::to_string(sparse.blocks),
             ShareText(sparse.kept, sparse.blocks),
             std::to_string(sparse.bytes), std::to_string(sparse.dense_bytes)});
  return "\n" + table.Text() + "  in blocks of " +
         std::to_string(sparse.block.outputs) + "x" +
         std::to_string(sparse.block.inputs) + ", as " + sparse.type +
         "; index " + IndexCodecName(sparse.index) + ", " +
         std::to_string(sparse.index_bytes) + " bytes: with it " +
         FormatBytes(sparse.bytes + sparse.index_bytes) + " instead of " +
         FormatBytes(sparse.dense_bytes) + "\n";
}

std::string TableOf(const WeightsFile& file) {
  Table table(3);
  table.Row({"tensor", "type", "shape", "bytes"});
  for (const StoredTensor& tensor : file.tensors) {
    table.Row({Printable(tensor.name), tensor.type, ShapeText(tensor.shape),
               std::to_string(tensor.bytes)});
  }
  table.Row({"all of them", "", "", std::to_string(file.tensor_bytes)});
  const std::string format =
      file.format.empty() ? "of no format named" : Printable(file.format);
  return Printable(file.path) + ": " + TitleOf(file) + "\n  " + format + ", " +
         std::to_string(file.file_bytes) + " bytes (" +
         FormatBytes(file.file_bytes) + "), " +
         (file.sealed ? "its checksum fits" : "it has no checksum") + "\n\n" +
         table.Text() +
         (file.sparse.has_value() ? SparseText(*file.sparse) : "");
}

int RunInspect(const InspectFlags& flags) {
  const auto file = InspectFile(flags.path);
  if (!file.ok()) return Report(file.status());
  std::fputs(
      (flags.json ? WeightsFileJson(*file) + "\n" : TableOf(*file)).c_str(),
      stdout);
  return 0;
}

}  // namespace

Command AddInspectCommand(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand(
      "inspect", "What a file of weights holds, and its bytes");
  command
      ->add_option("PATH", flags->path,
                   "Weights, a checkpoint or another safetensors file; or the "
                   "folder given to --out, for its weights")
      ->required()
      ->check(CheckNotEmpty);
  command->add_flag("--json", flags->json, "One JSON object, sizes in bytes");
  command->footer(
      "Example:\n"
      "  thimble inspect run1\n"
      "  thimble inspect run1/checkpoint.safetensors --json\n"
      "Of sparse weights it says how much each one keeps.");
  return [flags] { return RunInspect(*flags); };
}

}  // namespace thimble::cli
