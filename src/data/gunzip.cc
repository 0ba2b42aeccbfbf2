// SPDX-License-Identifier: Apache-2.0
#include "data/gunzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/files.h"
#include "thimble/size.h"

namespace thimble {
namespace {

constexpr size_t kPieceBytes = size_t{64} * 1024;

// One decompression: the zlib state, its buffers and where the bytes go.
class Gunzip {
 public:
  Gunzip(const std::string& source, AtomicFileWriter* writer,
         uint64_t max_bytes)
      : source_(source), writer_(writer), max_bytes_(max_bytes) {
    // 16: expect gzip's header and check its trailer, nothing else.
    ready_ = inflateInit2(&state_, 16 + MAX_WBITS) == Z_OK;
  }
  ~Gunzip() {
    if (ready_) inflateEnd(&state_);
  }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  Status Run(const FileDescriptor& file) {
    if (!ready_) return OutOfMemory();
    for (uint64_t offset = 0;;) {
      TH_ASSIGN_OR_RETURN(
          const size_t got,
          ReadSomeAt(file, std::as_writable_bytes(std::span(in_)), offset));
      if (got == 0) break;
      offset += got;
      TH_RETURN_IF_ERROR(Feed(got));
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

  // Fills out_ once, and writes it.
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
    if (piece.size() > max_bytes_ - writer_->bytes_written()) {
      return Status::Failed(
          fmt::format("{} unpacks to more than {}; that is no dataset of ours, "
                      "fetch the file again",
                      source_, FormatBytes(max_bytes_)));
    }
    return writer_->Write(std::as_bytes(piece));
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
  AtomicFileWriter* writer_;
  uint64_t max_bytes_;
  z_stream state_{};
  bool ready_ = false;
  bool ended_ = false;  // between members
  std::array<uint8_t, kPieceBytes> in_;
  std::array<uint8_t, kPieceBytes> out_;
};

}  // namespace

Status GunzipFile(const std::string& source, const std::string& target,
                  uint64_t max_bytes) {
  TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(source));
  TH_ASSIGN_OR_RETURN(AtomicFileWriter writer,
                      AtomicFileWriter::Create(target));
  // On the heap: thread stacks are small.
  const auto gunzip = std::make_unique<Gunzip>(source, &writer, max_bytes);
  TH_RETURN_IF_ERROR(gunzip->Run(file));
  return writer.Commit();
}

}  // namespace thimble
