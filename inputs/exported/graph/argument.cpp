#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/argument.h>

#include <nlohmann/json.hpp>
#include <optional>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;
using Kind = Argument::Kind;
using c10::TypeKind;

Operand literal(c10::IValue value) {
  return {-1, false, std::move(value)};
}

Operand slot_of(const Names& names, const Json& name) {
  return {names.slot(name.get<std::string>()), false, {}};
}

/// An entry of a list of symbolic values: {"as_name": ...} or {"as_int": ...}.
Operand symbol(const Json& value, const Names& names) {
  const auto [kind, entry] = alternative(value);
  if (kind == "as_name") {
    return slot_of(names, *entry);
  }
  if (kind == "as_int") {
    return literal(integer(*entry));
  }
  if (kind == "as_float") {
    return literal(floating(*entry));
  }
  if (kind == "as_bool") {
    return literal(entry->get<bool>());
  }
  malformed("unknown symbolic value '", kind, "'");
}

/// A number or its slot; empty for other kinds of values.
std::optional<Operand> number(const std::string& kind, const Json& value, const Names& names) {
  if (kind == "as_int") {
    return literal(integer(value));
  }
  if (kind == "as_float") {
    return literal(floating(value));
  }
  if (kind == "as_bool") {
    return literal(value.get<bool>());
  }
  if (kind == "as_complex") {
    return literal(c10::complex<double>(floating(value.at("real")), floating(value.at("imag"))));
  }
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
    return symbol(value, names);
  }
  return std::nullopt;
}

/// Describes the expected type and the given value, for errors.
struct Given {
  const std::string& kind;
  const Json& value;
  const c10::Argument& schema;
  const Names& names;

  [[noreturn]] void refuse() const {
    malformed("the argument '", schema.name(), "' of type ", schema.real_type()->str(),
              " cannot be made from '", kind, "'");
  }
};

Argument one(Kind kind, Operand operand) {
  return {kind, {std::move(operand)}};
}

Operand tensor_operand(const Json& value, const Names& names) {
  return slot_of(names, value.at("name"));
}

/// {"as_tensor": ...} or {"as_none": true}
Operand optional_tensor(const Json& value, const Names& names) {
  const auto [kind, entry] = alternative(value);
  if (kind == "as_none") {
    return literal({});
  }
  if (kind != "as_tensor") {
    malformed("unknown optional tensor '", kind, "'");
  }
  return tensor_operand(*entry, names);
}

Argument tensor_argument(const Given& given) {
  if (given.kind == "as_tensor") {
    return one(Kind::value, tensor_operand(given.value, given.names));
  }
  if (given.kind == "as_optional_tensor") {
    return one(Kind::value, optional_tensor(given.value, given.names));
  }
  const auto operand = number(given.kind, given.value, given.names);
  if (!operand.has_value()) {
    given.refuse();
  }
  if (operand->slot < 0) {
    return one(Kind::value, literal(wrapped_number(operand->literal)));
  }
  return one(Kind::number_as_tensor, *operand);
}

/// Integers, and the enumerations that schemas carry as integers.
Argument integer_argument(const Given& given) {
  const TypeKind type = given.schema.real_type()->kind() == TypeKind::OptionalType
                            ? given.schema.real_type()->containedType(0)->kind()
                            : given.schema.real_type()->kind();
  if (given.kind == "as_scalar_type" && type == TypeKind::ScalarTypeType) {
    return one(Kind::value, literal(static_cast<int64_t>(scalar_type(given.value))));
  }
  if (given.kind == "as_memory_format" && type == TypeKind::MemoryFormatType) {
    return one(Kind::value, literal(static_cast<int64_t>(memory_format(given.value))));
  }
  if (given.kind == "as_layout" && type == TypeKind::LayoutType) {
    if (integer(given.value) != 7) {
      malformed("the layout of '", given.schema.name(),
                "' is not strided: sparse tensors are not run");
    }
    return one(Kind::value, literal(static_cast<int64_t>(c10::kStrided)));
  }
  const bool plain = type != TypeKind::ScalarTypeType && type != TypeKind::MemoryFormatType &&
                     type != TypeKind::LayoutType;
  if (!plain || (given.kind != "as_int" && given.kind != "as_sym_int")) {
    given.refuse();
  }
  return one(Kind::value, *number(given.kind, given.value, given.names));
}

Argument float_argument(const Given& given) {
  if (given.kind == "as_bool" || given.kind == "as_sym_bool" || given.kind == "as_complex") {
    given.refuse();
  }
  const auto operand = number(given.kind, given.value, given.names);
  if (!operand.has_value()) {
    given.refuse();
  }
  if (operand->slot < 0) {
    return one(Kind::value, literal(operand->literal.toScalar().toDouble()));
  }
  return one(Kind::int_as_float, *operand);
}

template <typename Read>
Argument list(Kind kind, const Json& values, const Read& read) {
  Argument argument{kind, {}};
  for (const Json& value : values) {
    argument.operands.push_back(read(value));
  }
  return argument;
}

Argument tensor_list(const Given& given, bool optional) {
  const Kind kind = optional ? Kind::optional_tensors : Kind::tensors;
  if (given.kind == "as_tensors") {
    return list(kind, given.value,
                [&](const Json& value) { return tensor_operand(value, given.names); });
  }
  if (given.kind == "as_optional_tensors" && optional) {
    return list(kind, given.value,
                [&](const Json& value) { return optional_tensor(value, given.names); });
  }
  given.refuse();
}

/// A number in place of a list of fixed length stands for each element.
Argument repeated(Kind kind, const Given& given, const Operand& operand) {
  return {kind, std::vector<Operand>(static_cast<size_t>(given.schema.N().value_or(1)), operand)};
}

Argument integer_list(const Given& given) {
  if (given.kind == "as_ints") {
    return list(Kind::integers, given.value,
                [](const Json& value) { return literal(integer(value)); });
  }
  if (given.kind == "as_sym_ints") {
    return list(Kind::integers, given.value,
                [&](const Json& value) { return symbol(value, given.names); });
  }
  if (given.kind == "as_int" || given.kind == "as_sym_int") {
    return repeated(Kind::integers, given, *number(given.kind, given.value, given.names));
  }
  given.refuse();
}

Argument float_list(const Given& given) {
  if (given.kind == "as_floats" || given.kind == "as_ints") {
    return list(Kind::floats, given.value,
                [](const Json& value) { return literal(floating(value)); });
  }
  if (given.kind == "as_sym_floats" || given.kind == "as_sym_ints") {
    return list(Kind::floats, given.value,
                [&](const Json& value) { return symbol(value, given.names); });
  }
  given.refuse();
}

Argument list_argument(const Given& given, const c10::Type& element) {
  switch (element.kind()) {
    case TypeKind::TensorType:
      return tensor_list(given, false);
    case TypeKind::OptionalType:
      if (element.containedType(0)->kind() == TypeKind::TensorType) {
        return tensor_list(given, true);
      }
      given.refuse();
    case TypeKind::IntType:
      return integer_list(given);
    case TypeKind::FloatType:
      return float_list(given);
    case TypeKind::BoolType:
      if (given.kind == "as_bools") {
        return list(Kind::booleans, given.value,
                    [](const Json& value) { return literal(value.get<bool>()); });
      }
      given.refuse();
    default:
      given.refuse();
  }
}

Argument device_argument(const Given& given) {
  if (given.kind != "as_device") {
    given.refuse();
  }
  const c10::Device device = device_of(given.value);
  const bool own = device.type() == given.names.device.type() &&
                   (!device.has_index() || !given.names.device.has_index() ||
                    device.index() == given.names.device.index());
  return own ? Argument{Kind::place_device, {}} : one(Kind::value, literal(device));
}

Argument typed_argument(const Given& given, const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType:
      return tensor_argument(given);
    case TypeKind::ListType:
      return list_argument(given, *type.containedType(0));
    case TypeKind::IntType:
      return integer_argument(given);
    case TypeKind::FloatType:
      return float_argument(given);
    case TypeKind::NumberType:
      if (const auto operand = number(given.kind, given.value, given.names)) {
        return one(Kind::value, *operand);
      }
      given.refuse();
    case TypeKind::BoolType:
      if (given.kind == "as_bool" || given.kind == "as_sym_bool") {
        return one(Kind::value, *number(given.kind, given.value, given.names));
      }
      given.refuse();
    case TypeKind::StringType:
      if (given.kind == "as_string") {
        return one(Kind::value, literal(given.value.get<std::string>()));
      }
      given.refuse();
    case TypeKind::DeviceObjType:
      return device_argument(given);
    default:
      given.refuse();
  }
}

template <typename Element, typename Convert>
c10::List<Element> gathered(const std::vector<Operand>& operands, Values& values,
                            const Convert& convert) {
  c10::List<Element> list;
  list.reserve(operands.size());
  for (const Operand& operand : operands) {
    list.push_back(convert(operand.take(values)));
  }
  return list;
}

bool all_literal(const Argument& argument) {
  for (const Operand& operand : argument.operands) {
    if (operand.slot >= 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

c10::IValue Operand::take(Values& values) const {
  if (slot < 0) {
    return literal;
  }
  return last ? std::move(values[static_cast<size_t>(slot)]) : values[static_cast<size_t>(slot)];
}

at::Tensor wrapped_number(const c10::IValue& number) {
  const at::ScalarType dtype = number.isInt()             ? at::kLong
                               : number.isBool()          ? at::kBool
                               : number.isComplexDouble() ? at::kComplexDouble
                                                          : at::kDouble;
  at::Tensor tensor = at::scalar_tensor(number.toScalar(), at::TensorOptions(dtype));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

void Argument::push(Values& stack, Values& values, const Place& place) const {
  switch (kind) {
    case Kind::value:
      stack.push_back(operands[0].take(values));
      return;
    case Kind::number_as_tensor:
      stack.emplace_back(wrapped_number(operands[0].take(values)));
      return;
    case Kind::int_as_float:
      stack.emplace_back(operands[0].take(values).toScalar().toDouble());
      return;
    case Kind::tensors:
      stack.emplace_back(gathered<at::Tensor>(
          operands, values, [](const c10::IValue& value) { return value.toTensor(); }));
      return;
    case Kind::optional_tensors:
      stack.emplace_back(
          gathered<std::optional<at::Tensor>>(operands, values, [](const c10::IValue& value) {
            return value.isNone() ? std::nullopt : std::optional<at::Tensor>(value.toTensor());
          }));
      return;
    case Kind::integers:
      stack.emplace_back(gathered<int64_t>(operands, values,
                                           [](const c10::IValue& value) { return value.toInt(); }));
      return;
    case Kind::floats:
      stack.emplace_back(gathered<double>(
          operands, values, [](const c10::IValue& value) { return value.toScalar().toDouble(); }));
      return;
    case Kind::booleans:
      stack.emplace_back(gathered<bool>(operands, values,
                                        [](const c10::IValue& value) { return value.toBool(); }));
      return;
    case Kind::place_device:
      stack.emplace_back(place.device);
      return;
    case Kind::place_dtype:
      stack.emplace_back(static_cast<int64_t>(place.dtype));
      return;
  }
}

Argument argument_of(const Json& value, const c10::Argument& schema, const Names& names) {
  const auto [kind, entry] = alternative(value);
  const c10::TypePtr& type = schema.type();
  const bool optional = type->kind() == TypeKind::OptionalType;
  if (kind == "as_none") {
    if (!optional && type->kind() != TypeKind::NoneType) {
      malformed("the argument '", schema.name(), "' of type ", type->str(), " is None");
    }
    return one(Kind::value, literal({}));
  }
  const Given given{kind, *entry, schema, names};
  Argument argument = typed_argument(given, optional ? *type->containedType(0) : *type);
  const bool lists = argument.kind == Kind::integers || argument.kind == Kind::floats ||
                     argument.kind == Kind::booleans;
  if (lists && all_literal(argument)) {  // one list for all calls
    Values stack;
    Values none;
    argument.push(stack, none, {});
    return one(Kind::value, literal(std::move(stack[0])));
  }
  return argument;
}

Argument number_of(const Json& value, const Names& names) {
  const auto [kind, entry] = alternative(value);
  auto operand = number(kind, *entry, names);
  if (!operand.has_value()) {
    malformed("shape arithmetic takes numbers, not '", kind, "'");
  }
  return one(Kind::value, std::move(*operand));
}

}  // namespace lockstep::exported
