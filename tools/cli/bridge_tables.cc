#include "tools/cli/bridge_tables.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/cli/bridge_view.h"
#include "tools/cli/bridge_wait.h"
#include "tools/cli/table.h"

namespace lockstep::tools {
namespace {

constexpr size_t kTextColumns = 96;

std::string PaintState(const std::string& state, const Io& io) {
  if (state == "live") return Paint(io, Color::kGreen, state);
  if (state == "refused" || state == "quarantined" || state == "failed") {
    return Paint(io, Color::kRed, state);
  }
  if (state == "gone" || state == "retired" || state == "discarded") {
    return Paint(io, Color::kDim, state);
  }
  return Paint(io, Color::kYellow, state);
}

std::string Components(uint32_t verified, uint32_t total) {
  return total == 0 ? "" : absl::StrCat(verified, "/", total);
}

std::string VersionNotes(const VersionStatus& version) {
  std::vector<std::string> notes;
  if (version.rollback_of.has_value()) {
    notes.push_back(absl::StrCat("rollback of ", *version.rollback_of));
  }
  if (version.zero_change) notes.push_back("zero_change");
  if (version.nan_elements > 0) notes.push_back(absl::StrCat(version.nan_elements, " NaN"));
  if (!version.bytes_held && version.state != "discarded") notes.push_back("bytes not held");
  return absl::StrJoin(notes, ", ");
}

// A refusal's sentence is long; the table shows its code and `explain` the rest.
std::string ShortReason(const std::string& reason, const Io& io) {
  if (io.format == Format::kWide) return reason;
  return std::string(*absl::StrSplit(reason, absl::MaxSplits(':', 1)).begin());
}

}  // namespace

std::string VersionsText(const StatusReply& status, const Io& io) {
  std::vector<std::string> header = {"VERSION", "STATE",        "LIVE ON",
                                     "BYTES",   "SEALED (UTC)", "NOTES"};
  const bool wide = io.format == Format::kWide;
  if (wide) header.insert(header.end(), {"TENSORS", "EPOCH", "ON DISK", "CONTRACT", "ROOT"});
  Table table(header);
  table.AlignRight(0);
  table.AlignRight(2);
  table.AlignRight(3);
  for (const VersionStatus& version : status.versions) {
    std::vector<std::string> row = {
        absl::StrCat(version.version),
        PaintState(version.state, io),
        absl::StrCat(version.samplers_live),
        BytesText(version.bytes),
        version.sealed_wall_ms == 0 ? "" : TimeText(version.sealed_wall_ms),
        VersionNotes(version)};
    if (wide) {
      row.insert(row.end(), {absl::StrCat(version.tensors), absl::StrCat(version.epoch),
                             version.on_disk ? "yes" : "no", version.contract_short,
                             ToHex(version.manifest_root)});
    }
    table.Add(std::move(row));
  }
  return table.empty() ? "no version has been offered yet\n" : table.ToString();
}

std::string SamplersText(const StatusReply& status, const Io& io) {
  std::vector<std::string> header = {"SAMPLER",    "STATE",     "VERSION",
                                     "COMPONENTS", "TRANSPORT", "REASON"};
  const bool wide = io.format == Format::kWide;
  if (wide) header.insert(header.end() - 1, {"SENT", "CONNECTED", "CONTRACT"});
  Table table(header);
  table.AlignRight(2);
  table.AlignRight(3);
  for (const SamplerStatus& sampler : status.samplers) {
    std::vector<std::string> row = {
        sampler.name, PaintState(sampler.state, io),
        sampler.live_version.has_value() ? absl::StrCat(*sampler.live_version) : "",
        Components(sampler.components_verified, sampler.components_total), sampler.transport};
    if (wide) {
      row.insert(row.end(), {BytesText(sampler.bytes_sent), sampler.connected ? "yes" : "no",
                             sampler.contract_short});
    }
    row.push_back(ShortReason(sampler.reason, io));
    table.Add(std::move(row));
  }
  return table.empty() ? "no sampler has registered yet\n" : table.ToString();
}

std::string StatusText(const StatusReply& status, const Io& io) {
  std::string text =
      absl::StrCat("run ", Paint(io, Color::kBold, status.run), " at ", status.listen, "\n");
  if (status.trainer.has_value()) {
    absl::StrAppend(&text, "trainer ", status.trainer->name, ", epoch ", status.trainer->epoch,
                    status.trainer->connected ? ", connected" : ", gone", "; contract ",
                    status.contract_short, "\n");
  } else {
    absl::StrAppend(&text, "no trainer has stated a contract yet\n");
  }
  absl::StrAppend(&text, "\n", VersionsText(status, io), "\n", SamplersText(status, io), "\n",
                  "rollouts: ", RolloutsLine(status), "\n");
  for (const std::string& reason : Degradations(status)) {
    absl::StrAppend(&text, Paint(io, Color::kRed, "degraded"), ": ", reason, "\n");
  }
  for (const SamplerStatus& sampler : status.samplers) {
    if (sampler.state == "refused" || sampler.state == "quarantined") {
      absl::StrAppend(&text, "why: lockstep explain sampler ", sampler.name, "\n");
    }
  }
  return text;
}

std::string OutcomeText(const PublishOutcome& outcome, const Io& io) {
  const auto live =
      std::count_if(outcome.samplers.begin(), outcome.samplers.end(),
                    [](const SamplerOutcome& sampler) { return sampler.state == "live"; });
  std::string text = absl::StrCat("version ", outcome.version, " is durable and live on ", live,
                                  live == 1 ? " sampler" : " samplers", "\n");
  if (outcome.samplers.empty()) return text;
  Table table({"SAMPLER", "STATE", "COMPONENTS", "MS", "REASON"});
  table.AlignRight(2);
  table.AlignRight(3);
  for (const SamplerOutcome& sampler : outcome.samplers) {
    std::string reason;
    if (!sampler.refusals.empty()) {
      const Refusal& first = sampler.refusals.front();
      reason = absl::StrCat(RefusalCodeName(first.code), ": ", first.message);
    }
    table.Add({sampler.sampler, PaintState(sampler.state, io),
               Components(sampler.components_verified, sampler.components_total),
               absl::StrCat(sampler.elapsed_ms), reason});
  }
  return text + table.ToString();
}

std::string Wrap(absl::string_view text, size_t columns) {
  std::string wrapped;
  size_t width = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (width > 0 && width + 1 + word.size() > columns) {
      wrapped += '\n';
      width = 0;
    }
    absl::StrAppend(&wrapped, width > 0 ? " " : "", word);
    width += word.size() + (width > 0 ? 1 : 0);
  }
  return wrapped;
}

std::string ExplainText(const ExplainReply& reply, const Io& io) {
  std::string text = absl::StrCat(Paint(io, Color::kBold, reply.headline), "\n");
  for (const std::string& paragraph : reply.paragraphs) {
    absl::StrAppend(&text, "\n", Wrap(paragraph, kTextColumns), "\n");
  }
  if (reply.facts.empty()) return text;
  size_t width = 0;
  for (const ExplainFact& fact : reply.facts) width = std::max(width, fact.name.size());
  text += '\n';
  for (const ExplainFact& fact : reply.facts) {
    if (fact.value.empty()) continue;
    absl::StrAppend(&text, "  ", fact.name, std::string(width - fact.name.size() + 2, ' '),
                    fact.value, "\n");
  }
  return text;
}

}  // namespace lockstep::tools
