#include <archive.h>
#include <archive_entry.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/file_format.h>
#include <lockstep/inputs/datasets/archive/tar_entries.h>

#include <algorithm>
#include <memory>
#include <string_view>

namespace lockstep::detail {
namespace {

struct Close {
  void operator()(archive* tar) const { archive_read_free(tar); }
};

/// Throws unless the file has only zeros from `end`, the end of the entries, on: at least a block.
void require_end(const MappedData& file, size_t end) {
  constexpr size_t kBlock = 512;
  const std::string_view rest = file.text().substr(std::min(end, file.size()));
  const size_t more = rest.find_first_not_of('\0');
  file.check(more == std::string_view::npos, end + more,
             "there is more after the end of the tar file; if tar files were joined, pass each as "
             "a file of its own");
  file.check(rest.size() >= kBlock, end,
             "the tar file has no end: it was cut off, or the program that wrote it did not finish "
             "it");
}

}  // namespace

std::vector<TarEntry> tar_entries(const MappedData& file) {
  const std::unique_ptr<archive, Close> tar(archive_read_new());
  LOCKSTEP_CHECK(tar != nullptr, file.path(), ": libarchive cannot start");
  const auto check = [&](int result) {
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) {
      const FileFormat* format = known_format(file.text());
      const bool other = format != nullptr && std::string_view(format->name) != "tar";
      file.check(!other, 0, "this is a file of ", other ? format->name : "", ", no tar file; ",
                 other ? format->advice : "");
      const char* problem = archive_error_string(tar.get());
      file.check(false, static_cast<size_t>(archive_filter_bytes(tar.get(), 0)),
                 "is no plain tar file, or is damaged: ", problem != nullptr ? problem : "",
                 "; unpack a compressed one first");
    }
  };
  archive_read_support_format_tar(tar.get());  // no filter, so offsets are those of the file
  check(archive_read_open_memory(tar.get(), file.data(), file.size()));
  std::vector<TarEntry> entries;
  archive_entry* entry = nullptr;
  for (int result = 0; (result = archive_read_next_header(tar.get(), &entry)) != ARCHIVE_EOF;) {
    check(result);
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr) {
      continue;
    }
    const auto begin = static_cast<size_t>(archive_filter_bytes(tar.get(), 0));
    const char* name = archive_entry_pathname(entry);
    name = name != nullptr ? name : archive_entry_pathname_utf8(entry);
    file.check(name != nullptr, begin, "a file without a name");
    file.check(archive_entry_sparse_count(entry) == 0, begin, "the file ", name,
               " is stored with holes; pack without --sparse");
    const int64_t size = archive_entry_size(entry);
    file.check(
        size >= 0 && begin <= file.size() && static_cast<uint64_t>(size) <= file.size() - begin,
        begin, "the tar file ends in the middle of ", name);
    entries.push_back({name, begin, static_cast<size_t>(size)});
  }
  require_end(file, static_cast<size_t>(archive_read_header_position(tar.get())));
  return entries;
}

}  // namespace lockstep::detail
