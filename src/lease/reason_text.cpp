// SPDX-License-Identifier: Apache-2.0
// Sentences of reasons and of pause causes, from the templates in reason_kinds.cpp: pure functions of their arguments.
#include "lease/reason_kinds.h"

#include "base/size_bounds.h"

namespace sublet::core {
namespace {

std::string list_text(const std::vector<std::string>& list) {
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : i + 1 == list.size() ? " and " : ", ") + list[i];
  return text;
}

std::string parts_text(const std::vector<ReasonPart>& parts, std::string_view verb) {
  std::string text;
  for (const ReasonPart& part : parts) {
    if (!text.empty()) text += "; ";
    // The size of a lease is rounded down wherever it is shown.
    const bool of_lease = part.what.starts_with("lease-");
    text.append(part.what).append(verb).append(of_lease ? format_size_down(part.bytes) : format_size(part.bytes));
  }
  return text;
}

std::string value_text(const ReasonValue& value, std::string_view format) {
  struct {
    std::string_view format;
    std::string operator()(bool) const { return {}; }
    std::string operator()(std::int64_t number) const { return std::to_string(number); }
    std::string operator()(Bytes bytes) const {
      return format == "down" ? format_size_down(bytes) : format_size(bytes);
    }
    std::string operator()(Duration duration) const { return format_duration(duration); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<std::string>& list) const {
      return (format == "each" && list.size() > 1 ? "each of " : "") + list_text(list);
    }
    std::string operator()(const std::vector<ReasonPart>& parts) const {
      return parts_text(parts, format == "holds" ? " holds " : " ");
    }
  } const text_for{format};
  return std::visit(text_for, value);
}

// The size, with as many digits as it needs to differ from `other`.
std::string size_beside(const ReasonValue& value, Bytes other, bool above) {
  const auto* size = std::get_if<Bytes>(&value);
  if (size == nullptr) return value_text(value, {});
  return above ? format_sizes_finely(*size, other).first : format_sizes_finely(other, *size).second;
}

class Renderer {
 public:
  explicit Renderer(const ReasonArgs& args) : args_(args) {}

  // False: an argument is absent.
  bool append(std::string_view sentence, std::string& out) const {
    bool complete = true;
    while (!sentence.empty()) {
      const std::size_t at = std::min(sentence.find_first_of("[{"), sentence.size());
      out += sentence.substr(0, at);
      sentence.remove_prefix(at);
      if (sentence.empty()) break;
      const std::size_t end = sentence.front() == '[' ? end_of_clause(sentence) : sentence.find('}');
      const std::string_view inside = sentence.substr(1, end - 1);
      if (sentence.front() == '[') append_clause(inside, out);
      else complete &= append_value(inside, out);
      sentence.remove_prefix(end + 1);
    }
    return complete;
  }

 private:
  static std::size_t end_of_clause(std::string_view sentence) {
    int depth = 0;
    for (std::size_t i = 0; i < sentence.size(); ++i) {
      if (sentence[i] == '[') ++depth;
      if (sentence[i] == ']' && --depth == 0) return i;
    }
    return sentence.size() - 1;
  }

  void append_clause(std::string_view inside, std::string& out) const {
    const std::size_t before = out.size();
    if (!append(inside, out)) out.resize(before);
  }

  bool append_value(std::string_view name, std::string& out) const {
    if (name.starts_with('?')) return args_.has(name.substr(1));
    if (name.starts_with('!')) return !args_.has(name.substr(1));
    if (name.starts_with('#')) return append(fragment_of(name.substr(1)), out);
    if (name.starts_with('@'))
      return append(fragment_of(std::string(name.substr(1)) + "." + args_.text(name.substr(1))), out);
    const std::size_t colon = std::min(name.find(':'), name.size());
    const ReasonValue* value = args_.find(name.substr(0, colon));
    if (value == nullptr) return false;
    const std::string_view format = name.substr(std::min(colon + 1, name.size()));
    const bool above = format.starts_with("above "), below = format.starts_with("below ");
    if (above || below) out += size_beside(*value, args_.bytes(format.substr(6)), above);
    else out += value_text(*value, format);
    return true;
  }

  const ReasonArgs& args_;
};

}  // namespace

std::string render(std::string_view sentence, const ReasonArgs& args) {
  std::string text;
  text.reserve(2 * sentence.size());
  Renderer(args).append(sentence, text);
  return text;
}

std::string_view code(const Reason& reason) {
  if (reason.kind != ReasonKind::note) return row_of(reason.kind).code;
  const ReasonValue* earlier = reason.args.find("code");
  const auto* word = earlier == nullptr ? nullptr : std::get_if<std::string>(earlier);
  return word == nullptr ? row_of(reason.kind).code : std::string_view(*word);
}

std::string text_of(const Reason& reason) { return render(row_of(reason.kind).sentence, reason.args); }

std::string text_of(const PauseCause& cause) {
  return render(fragment_of("cause." + std::string(to_string(cause.kind))), cause.args);
}

std::string text_of_fragment(std::string_view fragment, const ReasonArgs& args) {
  return render(fragment_of(fragment), args);
}

}  // namespace sublet::core
