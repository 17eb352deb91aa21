#include <lockstep/collectives/check.h>
#include <lockstep/inputs/image_file.h>
#include <lockstep/inputs/image_folder.h>
#include <lockstep/inputs/image_transforms.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

bool ends_with_one_of(const std::string& name, std::initializer_list<std::string_view> endings) {
  std::string extension = std::filesystem::path(name).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return std::find(endings.begin(), endings.end(), extension) != endings.end();
}

bool is_image(const std::string& name) {
  return ends_with_one_of(name, {".jpg", ".jpeg", ".png"});
}

/// An image for torchvision's ImageFolder: left out, it would make its class smaller.
void refuse_other_image(const std::filesystem::path& path) {
  LOCKSTEP_CHECK_CODE(!ends_with_one_of(path.filename().string(),
                                        {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}),
                      ExitCode::data, path.string(),
                      ": is neither JPEG nor PNG; convert it to PNG, or remove it from its class");
}

/// Throws if the entry is a link to what is not there: left out, it would make its class smaller.
void require_target(const std::filesystem::directory_entry& entry) {
  std::error_code error;
  if (!entry.is_symlink(error) || std::filesystem::exists(entry.path(), error)) {
    return;
  }
  const auto target = std::filesystem::read_symlink(entry.path(), error);
  LOCKSTEP_CHECK_CODE(false, ExitCode::data, entry.path().string(), ": is a link to ",
                      target.string(),
                      ", which is not there; fetch it (git annex get, dvc pull), or remove the "
                      "link");
}

/// Throws if the entry is a link to a folder above it, below which the images would never end.
void refuse_circle(const std::filesystem::directory_entry& entry) {
  std::error_code error;
  if (!entry.is_symlink(error) || !entry.is_directory(error)) {
    return;
  }
  for (auto above = entry.path(); above.has_relative_path(); above = above.parent_path()) {
    LOCKSTEP_CHECK_CODE(!std::filesystem::equivalent(entry.path(), above.parent_path(), error),
                        ExitCode::data, entry.path().string(),
                        ": is a link to a folder above it; remove the link");
  }
}

void check_read(const std::string& folder, const std::error_code& error) {
  LOCKSTEP_CHECK_CODE(!error, ExitCode::data, folder, ": cannot be read: ", error.message(),
                      "; check the data folder");
}

bool is_hidden(const std::filesystem::path& path) {
  return path.filename().string().front() == '.';
}

/// The names of the sub-folders, sorted, without hidden ones.
std::vector<std::string> classes_in(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  check_read(folder, error);
  std::vector<std::string> names;
  for (const auto& entry : entries) {
    if (is_hidden(entry.path())) {
      continue;
    }
    require_target(entry);
    if (entry.is_directory(error)) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The images in a folder and in folders below it, in torchvision's order: by folder, then by name.
std::vector<std::string> images_below(const std::filesystem::path& folder) {
  using Iterator = std::filesystem::recursive_directory_iterator;
  std::error_code error;
  std::vector<std::pair<std::string, std::string>> found;
  Iterator entries(folder, std::filesystem::directory_options::follow_directory_symlink, error);
  for (; !error && entries != Iterator(); entries.increment(error)) {
    const std::filesystem::path& path = entries->path();
    const bool image = is_image(path.filename().string());
    if (is_hidden(path)) {
      entries.disable_recursion_pending();
      continue;
    }
    if (image || !path.has_extension()) {  // without one, it may be a folder
      require_target(*entries);
    }
    refuse_circle(*entries);
    if (std::error_code ignored; !entries->is_regular_file(ignored)) {
      continue;
    }
    if (image) {
      found.emplace_back(path.parent_path().string(), path.filename().string());
    } else {
      refuse_other_image(path);
    }
  }
  check_read(folder.string(), error);
  std::sort(found.begin(), found.end());
  std::vector<std::string> images;
  for (const auto& [parent, name] : found) {
    images.push_back((std::filesystem::path(parent) / name).string());
  }
  return images;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& folder, const ImageFolderOptions& options)
    : options_(options), classes_(classes_in(folder)) {
  LOCKSTEP_CHECK(options.side() >= 0, "ImageFolderOptions: side is ", options.side(),
                 ", expected 0 or more");
  LOCKSTEP_CHECK(options.channels() == 1 || options.channels() == 3,
                 "ImageFolderOptions: channels is ", options.channels(), ", expected 1 or 3");
  LOCKSTEP_CHECK_CODE(!classes_.empty(), ExitCode::data, folder,
                      ": has no sub-folder, expected one for each class of images");
  for (size_t label = 0; label < classes_.size(); ++label) {
    const std::filesystem::path of_class =
        (std::filesystem::absolute(folder) / classes_[label]).lexically_normal();
    const size_t before = images_.size();
    for (std::string& image : images_below(of_class)) {
      images_.emplace_back(std::move(image), static_cast<int64_t>(label));
    }
    LOCKSTEP_CHECK_CODE(images_.size() > before, ExitCode::data, of_class.string(),
                        ": has no file *.jpg, *.jpeg or *.png, expected the images of a class; "
                        "remove the folder if it is none");
  }
}

std::pair<at::Tensor, int64_t> ImageFolder::get(size_t index) const {
  const auto& [path, label] = images_.at(index);
  const at::Tensor image = read_image(path, options_.channels());
  return {options_.side() > 0 ? square(image, options_.side()) : image, label};
}

}  // namespace lockstep
