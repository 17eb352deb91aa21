#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct ImageFolderOptions {
  /// Each image is resized so that its shorter side has `side` pixels, and the middle square is
  /// taken, so that images of all sizes fit into one batch (see square()). 0: images stay as they
  /// are. Requires: >= 0.
  TORCH_ARG(int64_t, side) = 0;
  /// 3: colour; 1: grey. See read_image().
  TORCH_ARG(int, channels) = 3;
};

/// A dataset of images in one sub-folder per class:
///
///   train/cat/1.jpg, train/cat/2.png, train/dog/7.jpeg
///
///   lockstep::ImageFolder images("train", lockstep::ImageFolderOptions().side(224));
///
/// Classes are the names of the sub-folders in the order of their bytes, labels their numbers from
/// 0. The images of a class are the files *.jpg, *.jpeg and *.png, in upper or lower case, in its
/// folder and in folders below it, sorted by folder, then by name; other files, and what has a
/// hidden name (.git, .ipynb_checkpoints, ._1.jpg), are ignored. The constructor reads only names.
/// Can be used as a dataset for Loader. Ranks: local. Threads: several may call get at the same
/// time. Throws Error (exit code data) that names the folder if it cannot be read, has no
/// sub-folder, or if a class has no image, and one that names a broken link or an image of another
/// format (*.webp, *.bmp, *.tif, *.ppm, *.pgm); get() throws as read_image().
class ImageFolder {
 public:
  explicit ImageFolder(const std::string& folder, const ImageFolderOptions& options = {});

  size_t size() const { return images_.size(); }
  /// The image, uint8 [channels, height, width], and its label.
  std::pair<at::Tensor, int64_t> get(size_t index) const;

  const std::vector<std::string>& classes() const { return classes_; }
  /// The file and the label of an image.
  const std::string& path(size_t index) const { return images_.at(index).first; }
  int64_t label(size_t index) const { return images_.at(index).second; }

 private:
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<std::pair<std::string, int64_t>> images_;
};

}  // namespace lockstep
