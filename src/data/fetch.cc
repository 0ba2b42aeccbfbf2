// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/sha256.h"
#include "data/cifar10.h"
#include "data/download.h"
#include "data/gunzip.h"
#include "data/places.h"
#include "data/sums.h"
#include "data/tar.h"
#include "thimble/data.h"

namespace thimble {
namespace {

constexpr char kCifar10Address[] =
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
constexpr char kElsewhere[] =
    "Where the address cannot be reached, give the archive, a folder of its "
    "files or another address with FetchOptions::from, or build the files with "
    "scripts/get-cifar10-from-npm";

// Of an archive, packed or unpacked, whose size is not known. The published
// files take 184 MB.
constexpr uint64_t kMaxArchiveBytes = uint64_t{1} << 30;
constexpr size_t kFetchPiece = size_t{16} * 1024;

// Files on their way into a folder. Nothing appears there before all six have
// come and their sums agree.
class Incoming : public TarVisitor {
 public:
  // `source` is what errors name.
  Incoming(std::string source, std::string folder, const Cifar10Sums& sums)
      : source_(std::move(source)), folder_(std::move(folder)), sums_(sums) {
    for (size_t file = 0; file < kCifar10Files; ++file) {
      RemoveStaleTemporaries(PathOf(file));
    }
  }

  // Only the six names are taken, wherever in the archive they are. The path
  // that is written comes from our list, never from the archive.
  Status Begin(std::string_view name, uint64_t bytes) override {
    name.remove_prefix(name.rfind('/') + 1);
    file_ = 0;
    while (file_ < kCifar10Files && kCifar10Names[file_] != name) ++file_;
    if (file_ == kCifar10Files) return Status::Ok();
    if (writers_[file_].has_value()) {
      return Status::Failed(fmt::format("{} holds {} twice", source_, name));
    }
    if (sums_.file_bytes > 0 && bytes != sums_.file_bytes) {
      return Status::Failed(
          fmt::format("{} of {} has {} bytes, the published file {}", name,
                      source_, bytes, sums_.file_bytes));
    }
    TH_RETURN_IF_ERROR(CheckRoom(folder_, bytes));
    TH_ASSIGN_OR_RETURN(AtomicFileWriter writer,
                        AtomicFileWriter::Create(PathOf(file_)));
    writers_[file_].emplace(std::move(writer));
    sha_ = Sha256();
    return Status::Ok();
  }

  Status Data(std::span<const std::byte> piece) override {
    if (file_ == kCifar10Files) return Status::Ok();
    sha_.Update(piece);
    return writers_[file_]->Write(piece);
  }

  Status End() override {
    if (file_ == kCifar10Files) return Status::Ok();
    return CompareSum(fmt::format("{} of {}", kCifar10Names[file_], source_),
                      Hex(sha_.Final()), sums_.files[file_]);
  }

  Status Commit() {
    for (size_t file = 0; file < kCifar10Files; ++file) {
      if (!writers_[file].has_value()) {
        return Status::Failed(
            fmt::format("{} holds no {}", source_, kCifar10Names[file]));
      }
    }
    for (auto& writer : writers_) TH_RETURN_IF_ERROR(writer->Commit());
    return Status::Ok();
  }

 private:
  std::string PathOf(size_t file) const {
    return fmt::format("{}/{}", folder_, kCifar10Names[file]);
  }

  std::string source_;
  std::string folder_;
  const Cifar10Sums& sums_;
  std::array<std::optional<AtomicFileWriter>, kCifar10Files> writers_;
  size_t file_ = kCifar10Files;  // the current one; kCifar10Files: none of ours
  Sha256 sha_;
};

class Cifar10Fetch {
 public:
  Cifar10Fetch(const FetchOptions& options, Cifar10Sums sums,
               std::string target)
      : options_(options), sums_(std::move(sums)), target_(std::move(target)) {}

  Result<std::string> Run() const {
    TH_ASSIGN_OR_RETURN(const std::string there, FindCifar10Folder(target_));
    TH_ASSIGN_OR_RETURN(const bool all, HasCifar10Files(there));
    if (all && CheckFolder(there).ok()) return there;
    TH_RETURN_IF_ERROR(MakeDirs(target_));
    const std::string& from = options_.from;
    if (from.empty() || IsAddress(from)) {
      TH_RETURN_IF_ERROR(FromAddress(from.empty() ? kCifar10Address : from));
      return target_;
    }
    TH_ASSIGN_OR_RETURN(const PathKind kind, KindOf(from));
    TH_RETURN_IF_ERROR(kind == PathKind::kFolder ? FromFolder(from)
                                                 : FromArchive(from));
    return target_;
  }

 private:
  // Reports as progress what it is told.
  ByteCount Counter(const char* doing, uint64_t total) const {
    if (!options_.progress) return {};
    return [this, doing, total](uint64_t bytes) {
      options_.progress({doing, bytes, total});
    };
  }

  Status CheckFolder(const std::string& folder) const {
    for (size_t file = 0; file < kCifar10Files; ++file) {
      const std::string path =
          fmt::format("{}/{}", folder, kCifar10Names[file]);
      TH_ASSIGN_OR_RETURN(const std::string sum,
                          Sha256OfFile(path, Counter("checking", 0)));
      TH_RETURN_IF_ERROR(CompareSum(path, sum, sums_.files[file]));
    }
    return Status::Ok();
  }

  Status FromFolder(const std::string& given) const {
    TH_ASSIGN_OR_RETURN(const std::string found, FindCifar10Folder(given));
    const std::string& folder = found.empty() ? given : found;
    Incoming incoming(folder, target_, sums_);
    std::array<std::byte, kFetchPiece> piece;
    for (const std::string_view name : kCifar10Names) {
      TH_ASSIGN_OR_RETURN(const FileDescriptor file,
                          OpenForReading(fmt::format("{}/{}", folder, name)));
      TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
      TH_RETURN_IF_ERROR(incoming.Begin(name, stamp.bytes));
      for (uint64_t offset = 0;;) {
        TH_ASSIGN_OR_RETURN(const size_t got, ReadSomeAt(file, piece, offset));
        if (got == 0) break;
        offset += got;
        TH_RETURN_IF_ERROR(incoming.Data(std::span(piece).first(got)));
      }
      TH_RETURN_IF_ERROR(incoming.End());
    }
    return incoming.Commit();
  }

  Status FromArchive(const std::string& path) const {
    TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(path));
    TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
    Incoming incoming(path, target_, sums_);
    TarParser tar(path, &incoming);
    TH_RETURN_IF_ERROR(Gunzip(
        path,
        [&tar](std::span<const std::byte> piece) { return tar.Feed(piece); },
        Counter("unpacking", stamp.bytes), kMaxArchiveBytes));
    TH_RETURN_IF_ERROR(tar.Finish());
    return incoming.Commit();
  }

  // What is downloaded must be the published archive to the last byte: one that
  // was packed again elsewhere can still be given as a file.
  Status FromAddress(const std::string& url) const {
    if (url.rfind("http://", 0) != 0 && url.rfind("https://", 0) != 0) {
      return Status::Usage(fmt::format(
          "{}: an address must begin with http:// or https://", url));
    }
    std::string folder = options_.places.cache_dir;
    if (folder.empty()) {
      TH_ASSIGN_OR_RETURN(folder, UserCacheDir());
    }
    folder += "/downloads";
    TH_RETURN_IF_ERROR(MakeDirs(folder));
    // Open to the end: nobody else may write there meanwhile.
    TH_ASSIGN_OR_RETURN(
        const FileDescriptor part,
        OpenForDownload(fmt::format("{}/{}.part", folder, kCifar10Archive)));
    TH_RETURN_IF_ERROR(Complete(part, url));
    Status status = FromArchive(part.path());
    // A right archive is kept for the next try: a full disk is not its fault.
    if (status.ok() || sums_.archive.empty()) unlink(part.path().c_str());
    return status;
  }

  // Downloads what is missing. The file is removed where it is of no use.
  Status Complete(const FileDescriptor& part, const std::string& url) const {
    TH_ASSIGN_OR_RETURN(const FileStamp before, StampOf(part));
    const bool may_be_whole = sums_.archive_bytes == 0
                                  ? before.bytes > 0
                                  : before.bytes == sums_.archive_bytes;
    if (may_be_whole && !sums_.archive.empty() && CheckArchive(part).ok()) {
      return Status::Ok();
    }
    TH_RETURN_IF_ERROR(DownloadTo(part, url));
    Status status = CheckArchive(part);
    if (!status.ok() && before.bytes > 0) {
      // Perhaps what was there came from another address.
      if (ftruncate(part.get(), 0) == 0) {
        TH_RETURN_IF_ERROR(DownloadTo(part, url));
        status = CheckArchive(part);
      }
    }
    if (status.ok()) return status;
    unlink(part.path().c_str());
    return Status::Failed(
        fmt::format("{}. It was removed; try again. If the address serves "
                    "another archive of the same files, download it and give "
                    "the file with FetchOptions::from",
                    status.message()));
  }

  Status CheckArchive(const FileDescriptor& part) const {
    if (sums_.archive.empty()) return Status::Ok();
    TH_ASSIGN_OR_RETURN(const std::string sum,
                        Sha256OfFile(part.path(), Counter("checking", 0)));
    return CompareSum(part.path(), sum, sums_.archive);
  }

  Status DownloadTo(const FileDescriptor& part, const std::string& url) const {
    Status status = Download(
        url, part,
        sums_.archive_bytes > 0 ? sums_.archive_bytes : kMaxArchiveBytes,
        Counter("downloading", sums_.archive_bytes));
    if (status.ok()) return status;
    TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(part));
    if (stamp.bytes == 0) unlink(part.path().c_str());
    return Status::Failed(fmt::format(
        "{}. {}{}", status.message(),
        stamp.bytes == 0
            ? ""
            : "What has arrived is kept, and the same command goes on from "
              "it. ",
        kElsewhere));
  }

  const FetchOptions& options_;
  Cifar10Sums sums_;
  std::string target_;
};

}  // namespace

Result<std::string> FetchDataset(const std::string& name,
                                 const FetchOptions& options) {
  if (name != kCifar10) {
    for (const DatasetSummary& known : KnownDatasets()) {
      if (name != known.name) continue;
      return Status::Usage(fmt::format("only cifar10 can be fetched; {} is: {}",
                                       name, known.description));
    }
    return Status::Usage(fmt::format(
        "unknown dataset '{}'; KnownDatasets() shows those known", name));
  }
  Cifar10Sums sums = PublishedCifar10Sums();
  if (!options.sums.empty()) {
    TH_ASSIGN_OR_RETURN(sums, ReadCifar10Sums(options.sums));
  }
  std::string target = options.places.data_dir;
  if (target.empty()) {
    std::string cache = options.places.cache_dir;
    if (cache.empty()) {
      TH_ASSIGN_OR_RETURN(cache, UserCacheDir());
    }
    target = fmt::format("{}/{}", cache, kCifar10);
  }
  return Cifar10Fetch(options, std::move(sums), std::move(target)).Run();
}

}  // namespace thimble
