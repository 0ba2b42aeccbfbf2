// SPDX-License-Identifier: Apache-2.0
//
// For tests: reads a page strictly. Every element is closed in order, every
// attribute is quoted and given once, every & begins one of the entities that
// we write; scripts and styles are taken as they stand, as browsers do.
// Anything else fails the test. Shares no code with what writes pages.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace thimble {

struct HtmlElement {
  std::string tag;
  std::map<std::string, std::string> attributes;
  std::string text;  // its own and that of the elements in it
  int parent = -1;   // index; -1 for the root

  std::string Get(const std::string& attribute) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? "" : found->second;
  }
};

class HtmlReader {
 public:
  // In the order of their opening tags; empty after a failure.
  static std::vector<HtmlElement> Read(std::string_view page) {
    HtmlReader reader(page);
    if (!reader.ReadAll()) {
      const size_t from = reader.at_ < 40 ? 0 : reader.at_ - 40;
      ADD_FAILURE() << reader.error_ << " at byte " << reader.at_ << ": …"
                    << page.substr(from, 80) << "…";
      return {};
    }
    return std::move(reader.elements_);
  }

 private:
  explicit HtmlReader(std::string_view page) : page_(page) {}

  bool ReadAll() {
    if (!Take("<!DOCTYPE html>\n")) return Fail("no doctype");
    while (at_ < page_.size()) {
      if (page_[at_] == '<' ? !ReadTag() : !ReadText()) return false;
    }
    if (!open_.empty()) return Fail("open at the end: " + Innermost().tag);
    return elements_.empty() ? Fail("empty") : true;
  }

  bool ReadTag() {
    if (Take("</")) {
      const std::string tag = Word();
      if (open_.empty() || Innermost().tag != tag) {
        return Fail("closes what is not open: " + tag);
      }
      Close();
      return Take(">") || Fail("no > after </" + tag);
    }
    ++at_;  // <
    HtmlElement element{.tag = Word()};
    if (element.tag.empty()) return Fail("a < that begins no tag");
    if (open_.empty() && !elements_.empty()) return Fail("a second root");
    while (Take(" ")) {
      const std::string name = Word();
      if (name.empty() || !Take("=\"")) return Fail("no name=\"");
      const size_t end = page_.find('"', at_);
      if (end == page_.npos) return Fail("no closing quote");
      std::string value;
      if (!Decode(end, value)) return false;
      at_ = end + 1;
      if (!element.attributes.emplace(name, value).second) {
        return Fail("given twice: " + name);
      }
    }
    if (!open_.empty()) element.parent = open_.back();
    open_.push_back(static_cast<int>(elements_.size()));
    elements_.push_back(std::move(element));
    if (Take("/>")) return Close();
    if (!Take(">")) return Fail("no > after <" + Innermost().tag);
    if (Innermost().tag == "script" || Innermost().tag == "style") {
      return ReadRaw("</" + Innermost().tag + ">");
    }
    return true;
  }

  bool ReadRaw(const std::string& closing) {
    const size_t end = page_.find(closing, at_);
    if (end == page_.npos) return Fail("no " + closing);
    Innermost().text = page_.substr(at_, end - at_);
    at_ = end + closing.size();
    open_.pop_back();  // its text is none of the page's
    return true;
  }

  bool ReadText() {
    size_t end = page_.find('<', at_);
    if (end == page_.npos) end = page_.size();
    std::string text;
    if (!Decode(end, text)) return false;
    at_ = end;
    if (!open_.empty()) {
      Innermost().text += text;
    } else if (text.find_first_not_of('\n') != text.npos) {
      return Fail("text outside of the root");
    }
    return true;
  }

  // What stands from at_ to `end`, entities resolved.
  bool Decode(size_t end, std::string& text) {
    static const std::map<std::string_view, char> kEntities = {
        {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}};
    for (size_t i = at_; i < end; ++i) {
      const char c = page_[i];
      if (c == '<') return Fail("a < in an attribute");
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n') {
        return Fail("a control character");
      }
      if (c != '&') {
        text += c;
        continue;
      }
      const size_t semicolon = page_.find(';', i);
      if (semicolon == page_.npos) return Fail("an & that stands alone");
      const auto found = kEntities.find(page_.substr(i + 1, semicolon - i - 1));
      if (found == kEntities.end()) return Fail("an & that stands alone");
      text += found->second;
      i = semicolon;
    }
    return true;
  }

  bool Close() {
    const int closed = open_.back();
    open_.pop_back();
    if (!open_.empty()) Innermost().text += elements_[closed].text;
    return true;
  }

  bool Take(std::string_view expected) {
    if (page_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  std::string Word() {
    const size_t begin = at_;
    while (at_ < page_.size() &&
           (std::isalnum(static_cast<unsigned char>(page_[at_])) != 0 ||
            page_[at_] == '-')) {
      ++at_;
    }
    return std::string(page_.substr(begin, at_ - begin));
  }

  HtmlElement& Innermost() { return elements_[open_.back()]; }

  bool Fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }

  std::string_view page_;
  size_t at_ = 0;
  std::string error_;
  std::vector<HtmlElement> elements_;
  std::vector<int> open_;
};

}  // namespace thimble
