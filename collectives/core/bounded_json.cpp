#include <lockstep/collectives/impl/bounded_json.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace {

using nlohmann::json;

/// Builds the document from the parser's events; stops at the first that is not allowed.
class DocumentBuilder : public nlohmann::json_sax<json> {
 public:
  explicit DocumentBuilder(const JsonLimits& limits) : limits_(limits) {}

  json take() { return std::move(root_); }
  BadJson fault() const { return {complaint_, position_}; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return refuse("binary values are not JSON"); }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (name.size() > limits_.key_bytes) {
      return refuse("a key of " + std::to_string(name.size()) + " bytes; at most " +
                    std::to_string(limits_.key_bytes) + " are allowed");
    }
    if (open_.back()->contains(name)) {
      return refuse("duplicate key \"" + name + "\"");
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    return refuse(std::string("not JSON: ") + error.what());
  }

 private:
  bool refuse(std::string complaint) {
    complaint_ = std::move(complaint);
    return false;
  }

  json* place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    json& slot = (*open_.back())[key_];
    slot = std::move(value);
    return &slot;
  }

  bool add(json value) {
    if (++values_ > limits_.values) {
      return refuse("more than " + std::to_string(limits_.values) + " values");
    }
    place(std::move(value));
    return true;
  }

  bool open(json value) {
    if (open_.size() == limits_.depth) {
      return refuse("nested deeper than " + std::to_string(limits_.depth));
    }
    if (++values_ > limits_.values) {
      return refuse("more than " + std::to_string(limits_.values) + " values");
    }
    open_.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  json root_;
  std::vector<json*> open_;
  std::string key_;
  std::string complaint_;
  size_t values_ = 0;
  size_t position_ = 0;
};

}  // namespace

json bounded_json(std::string_view text, const JsonLimits& limits) {
  DocumentBuilder builder(limits);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    throw builder.fault();
  }
  return builder.take();
}

}  // namespace lockstep::detail
