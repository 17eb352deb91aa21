#include <lockstep/collectives/check.h>
#include <lockstep/inputs/image_file.h>
#include <lockstep/inputs/image_folder.h>
#include <lockstep/inputs/image_transforms.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

bool is_image(const std::string& name) {
  std::string extension = std::filesystem::path(name).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
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

/// The names in a folder, sorted: of folders, or of images. Hidden ones are left out.
std::vector<std::string> names_in(const std::string& folder, bool folders) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  LOCKSTEP_CHECK_CODE(!error, ExitCode::data, folder, ": cannot be read: ", error.message(),
                      "; check the data folder");
  std::vector<std::string> names;
  for (const auto& entry : entries) {
    std::string name = entry.path().filename().string();
    if (name.front() == '.' || (!folders && !is_image(name))) {
      continue;
    }
    require_target(entry);
    std::error_code ignored;
    if (folders ? entry.is_directory(ignored) : entry.is_regular_file(ignored)) {
      names.push_back(std::move(name));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& folder, const ImageFolderOptions& options)
    : options_(options), classes_(names_in(folder, /*folders=*/true)) {
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
    for (const std::string& name : names_in(of_class.string(), /*folders=*/false)) {
      images_.emplace_back((of_class / name).string(), static_cast<int64_t>(label));
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
