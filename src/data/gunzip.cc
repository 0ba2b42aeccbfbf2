// SPDX-License-Identifier: Apache-2.0
#include "data/gunzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "data/places.h"
#include "thimble/size.h"

namespace thimble {
namespace {

constexpr size_t kGzipPiece = size_t{64} * 1024;

// One decompression: the zlib state, its buffers and where the bytes go.
class Inflater {
 public:
  Inflater(const std::string& source, const PieceSink& sink, uint64_t max_bytes)
      : source_(source), sink_(sink), bytes_left_(max_bytes) {
    // 16: expect gzip's header and check its trailer, nothing else.
    ready_ = inflateInit2(&state_, 16 + MAX_WBITS) == Z_OK;
  }
  ~Inflater() {
    if (ready_) inflateEnd(&state_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  Status Run(const FileDescriptor& file,
             const std::function<void(uint64_t)>& done) {
    if (!ready_) return OutOfMemory();
    for (uint64_t offset = 0;;) {
      TH_ASSIGN_OR_RETURN(
          const size_t got,
          ReadSomeAt(file, std::as_writable_bytes(std::span(in_)), offset));
      if (got == 0) break;
      offset += got;
      TH_RETURN_IF_ERROR(Feed(got));
      if (done) done(offset);
    }
    if (ended_) return Status::Ok();
    return Damaged("it is cut short");
  }

 private:
  // Unpacks the first `bytes` of in_. A gzip file may be several members one
  // after the other; anything else after a member is damage.
  Status Feed(size_t bytes) {
    state_.next_in = in_.data();
    state_.avail_in = static_cast<uInt>(bytes);
    do {
      if (ended_) {
        inflateReset(&state_);
        ended_ = false;
      }
      TH_RETURN_IF_ERROR(Step());
    } while (state_.avail_in > 0 || (!ended_ && state_.avail_out == 0));
    return Status::Ok();
  }

  // Fills out_ once, and passes it on.
  Status Step() {
    state_.next_out = out_.data();
    state_.avail_out = static_cast<uInt>(out_.size());
    const int code = inflate(&state_, Z_NO_FLUSH);
    ended_ = code == Z_STREAM_END;
    if (code == Z_MEM_ERROR) return OutOfMemory();
    // Z_BUF_ERROR only says that more input is needed.
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      return Damaged(state_.msg != nullptr ? state_.msg : "bad data");
    }
    const auto piece =
        std::span<const uint8_t>(out_).first(out_.size() - state_.avail_out);
    if (piece.size() > bytes_left_) {
      return Status::Failed(
          fmt::format("{} unpacks to more than {}; that is no dataset of ours, "
                      "fetch the file again",
                      source_, FormatBytes(unpacked_ + bytes_left_)));
    }
    bytes_left_ -= piece.size();
    unpacked_ += piece.size();
    return piece.empty() ? Status::Ok() : sink_(std::as_bytes(piece));
  }

  Status Damaged(const char* why) const {
    return Status::Failed(fmt::format(
        "{} is damaged or no gzip file ({}); fetch it again", source_, why));
  }

  Status OutOfMemory() const {
    return Status::Failed(fmt::format(
        "not enough memory to unpack {}; it takes about 200 kB", source_));
  }

  const std::string& source_;
  const PieceSink& sink_;
  uint64_t bytes_left_;
  uint64_t unpacked_ = 0;
  z_stream state_{};
  bool ready_ = false;
  bool ended_ = false;  // between members
  std::array<uint8_t, kGzipPiece> in_;
  std::array<uint8_t, kGzipPiece> out_;
};

// A file that is begun when its header has come, and takes no byte more than
// that promises.
class PromisedFile {
 public:
  PromisedFile(const std::string& source, const std::string& target,
               const UnpackedHeader& header)
      : source_(source), target_(target), header_(header) {}

  Status Take(std::span<const std::byte> piece) {
    if (!writer_.has_value()) {
      const auto part =
          piece.first(std::min(header_.bytes - first_.size(), piece.size()));
      first_.insert(first_.end(), part.begin(), part.end());
      if (first_.size() < header_.bytes) return Status::Ok();
      TH_RETURN_IF_ERROR(Begin());
      piece = piece.subspan(part.size());
    }
    return Put(piece);
  }

  // After the last piece.
  Status Finish() {
    if (!writer_.has_value()) TH_RETURN_IF_ERROR(Begin());
    const uint64_t bytes = writer_->bytes_written();
    if (bytes == promised_) return writer_->Commit();
    return BadLength(fmt::format("unpacks to {}: it is cut short", bytes));
  }

 private:
  Status Begin() {
    TH_ASSIGN_OR_RETURN(promised_, header_.length(first_));
    const size_t slash = target_.rfind('/');
    const Status room = CheckRoom(
        slash == std::string::npos ? "." : target_.substr(0, slash + 1),
        promised_);
    if (!room.ok()) {
      return Status::Failed(
          fmt::format("cannot unpack {}: {}", source_, room.message()));
    }
    if (promised_ > kMaxUnpackedBytes) {
      return BadLength(fmt::format("must not take more than {}",
                                   FormatBytes(kMaxUnpackedBytes)));
    }
    TH_ASSIGN_OR_RETURN(AtomicFileWriter writer,
                        AtomicFileWriter::Create(target_));
    writer_.emplace(std::move(writer));
    return Put(first_);
  }

  Status Put(std::span<const std::byte> piece) {
    if (piece.size() > promised_ - writer_->bytes_written()) {
      return BadLength("unpacks to more: it is too long");
    }
    return writer_->Write(piece);
  }

  Status BadLength(const std::string& why) const {
    return Status::Failed(
        fmt::format("{}: its header promises {} bytes, but it {}; fetch the "
                    "file again",
                    source_, promised_, why));
  }

  const std::string& source_;
  const std::string& target_;
  const UnpackedHeader& header_;
  std::vector<std::byte> first_;  // of the header
  uint64_t promised_ = 0;
  std::optional<AtomicFileWriter> writer_;
};

}  // namespace

Status Gunzip(const std::string& source, const PieceSink& sink,
              const std::function<void(uint64_t)>& done, uint64_t max_bytes) {
  TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(source));
  // On the heap: thread stacks are small.
  return std::make_unique<Inflater>(source, sink, max_bytes)->Run(file, done);
}

Status GunzipFile(const std::string& source, const std::string& target,
                  const UnpackedHeader& header) {
  RemoveStaleTemporaries(target);
  PromisedFile file(source, target, header);
  TH_RETURN_IF_ERROR(Gunzip(source, [&file](std::span<const std::byte> piece) {
    return file.Take(piece);
  }));
  return file.Finish();
}

}  // namespace thimble
