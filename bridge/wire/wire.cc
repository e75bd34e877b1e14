#include "bridge/wire/wire.h"

#include <capnp/serialize.h>
#include <kj/exception.h>

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "bridge/wire/convert.h"
#include "bridge/wire/frame.h"
#include "policy/status_macros.h"

namespace lockstep::wire {
namespace {

// Most messages fit, so that encoding them allocates nothing but the frame.
constexpr size_t kScratchWords = 256;

// Builds a frame of `format` whose root `fill` writes.
template <typename Root, typename Fill>
std::vector<uint8_t> BuildMessage(const FrameFormat& format, const Fill& fill) {
  capnp::word scratch[kScratchWords] = {};
  capnp::MallocMessageBuilder message(kj::arrayPtr(scratch, kScratchWords));
  fill(message.initRoot<Root>());
  return BuildFrame(format, message);
}

// The one place that catches: opens a frame and lets `read` turn its root into a plain
// struct.
template <typename Root, typename Reader>
absl::Status ReadMessage(const FrameFormat& format, absl::Span<const uint8_t> frame,
                         const Reader& read) {
  LOCKSTEP_ASSIGN_OR_RETURN(const kj::Array<capnp::word> words, OpenFrame(format, frame));
  try {
    capnp::FlatArrayMessageReader message(words, FrameReaderOptions(words.size()));
    if (message.getEnd() != words.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad message: ", words.end() - message.getEnd(), " words follow it"));
    }
    return read(message.getRoot<Root>());
  } catch (const kj::Exception& error) {
    const kj::StringPtr text = error.getDescription();
    return absl::InvalidArgumentError(
        absl::StrCat("bad message: ", CleanText({text.begin(), text.size()}, kMaxNameBytes)));
  }
}

uint64_t MaxFrameBytes(schema::Envelope::Body::Which which) {
  using Body = schema::Envelope::Body;
  switch (which) {
    case Body::REGISTER_TRAINER:
    case Body::REGISTER_SAMPLER:
    case Body::SEAL_VERSION:
    case Body::PUBLISH_OUTCOME:
    case Body::ROUND_START:
    case Body::VERIFIED:
    case Body::STATUS_REPLY:
    case Body::EVENTS_REPLY:
    case Body::EXPLAIN_REPLY:
      return kMaxControlFrameBytes;
    case Body::REFUSED:
    case Body::SUBMIT_ROLLOUT:
    case Body::SUBMIT_ROLLOUT_FOR:
    case Body::SUBMIT_RESCORE:
    case Body::DECISION_REPLY:
      return kMaxRolloutFrameBytes;
    default:
      return kMaxSmallFrameBytes;
  }
}

// One overload a message: init<Message>() of the body, then Write.
struct BodyWriter {
  schema::Envelope::Body::Builder body;

#define LOCKSTEP_WIRE_WRITE(Type, DISCRIMINANT) \
  void operator()(const Type& from) { Write(from, body.init##Type()); }
  LOCKSTEP_WIRE_MESSAGES(LOCKSTEP_WIRE_WRITE)
#undef LOCKSTEP_WIRE_WRITE
};

absl::Status ReadBody(schema::Envelope::Body::Reader from, Message& to) {
  switch (from.which()) {
#define LOCKSTEP_WIRE_READ(Type, DISCRIMINANT) \
  case schema::Envelope::Body::DISCRIMINANT:   \
    return Read(from.get##Type(), to.emplace<Type>());
    LOCKSTEP_WIRE_MESSAGES(LOCKSTEP_WIRE_READ)
#undef LOCKSTEP_WIRE_READ
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "bad message: its kind ", static_cast<int>(from.which()), " is none of this build"));
}

absl::Status ReadHeader(schema::Envelope::Reader from, EnvelopeHeader& to) {
  to.seq = from.getSeq();
  to.reply_to = from.getReplyTo();
  return FieldReader()
      .Bytes(from.getIncarnation(), "envelope.incarnation", absl::MakeSpan(to.incarnation))
      .Done();
}

// Opens a blob that must be of `kind` and lets `read` take its value.
template <typename T, typename Read>
absl::StatusOr<T> DecodeBlob(absl::Span<const uint8_t> blob, schema::Blob::Which kind,
                             const Read& read) {
  T value;
  LOCKSTEP_RETURN_IF_ERROR(
      ReadMessage<schema::Blob>(kBlobFormat, blob, [&](schema::Blob::Reader root) -> absl::Status {
        if (root.which() != kind) {
          return absl::InvalidArgumentError(absl::StrCat("bad blob: kind ",
                                                         static_cast<int>(root.which()),
                                                         ", expected ", static_cast<int>(kind)));
        }
        return read(root, value);
      }));
  return value;
}

template <typename Fill>
std::vector<uint8_t> EncodeBlob(const Fill& fill) {
  return BuildMessage<schema::Blob>(kBlobFormat, fill);
}

}  // namespace

std::vector<uint8_t> Encode(const Envelope& envelope) {
  return BuildMessage<schema::Envelope>(kMessageFormat, [&](schema::Envelope::Builder root) {
    root.setIncarnation(AsData(envelope.incarnation));
    root.setSeq(envelope.seq);
    root.setReplyTo(envelope.reply_to);
    std::visit(BodyWriter{root.initBody()}, envelope.body);
  });
}

absl::StatusOr<Envelope> Decode(absl::Span<const uint8_t> frame) {
  Envelope envelope;
  LOCKSTEP_RETURN_IF_ERROR(ReadMessage<schema::Envelope>(
      kMessageFormat, frame, [&](schema::Envelope::Reader root) -> absl::Status {
        EnvelopeHeader header;
        LOCKSTEP_RETURN_IF_ERROR(ReadHeader(root, header));
        envelope.incarnation = header.incarnation;
        envelope.seq = header.seq;
        envelope.reply_to = header.reply_to;
        const uint64_t max_bytes = MaxFrameBytes(root.getBody().which());
        if (frame.size() > max_bytes) {
          return absl::InvalidArgumentError(absl::StrCat("bad message: ", frame.size(),
                                                         " bytes; at most ", max_bytes,
                                                         " are allowed for its kind"));
        }
        return ReadBody(root.getBody(), envelope.body);
      }));
  return envelope;
}

bool IsProtocolVersionError(const absl::Status& status) {
  return status.GetPayload(kVersionErrorPayload).has_value();
}

absl::StatusOr<EnvelopeHeader> DecodeHeader(absl::Span<const uint8_t> frame) {
  EnvelopeHeader header;
  LOCKSTEP_RETURN_IF_ERROR(ReadMessage<schema::Envelope>(
      kMessageFormat, frame,
      [&](schema::Envelope::Reader root) { return ReadHeader(root, header); }));
  return header;
}

#define LOCKSTEP_WIRE_BLOB(Type, DISCRIMINANT)                                           \
  std::vector<uint8_t> Encode##Type(const Type& from) {                                  \
    return EncodeBlob([&](schema::Blob::Builder to) { Write(from, to.init##Type()); });  \
  }                                                                                      \
  absl::StatusOr<Type> Decode##Type(absl::Span<const uint8_t> blob) {                    \
    return DecodeBlob<Type>(                                                             \
        blob, schema::Blob::DISCRIMINANT,                                                \
        [](schema::Blob::Reader from, Type& to) { return Read(from.get##Type(), to); }); \
  }
LOCKSTEP_WIRE_BLOB(Decision, DECISION)
LOCKSTEP_WIRE_BLOB(Rollout, ROLLOUT)
LOCKSTEP_WIRE_BLOB(Manifest, MANIFEST)
LOCKSTEP_WIRE_BLOB(VersionDigest, VERSION_DIGEST)
LOCKSTEP_WIRE_BLOB(Evidence, EVIDENCE)
#undef LOCKSTEP_WIRE_BLOB

std::vector<uint8_t> EncodeComponents(const std::vector<ComponentDigest>& components) {
  return EncodeBlob([&](schema::Blob::Builder to) {
    WriteList(components, to.initComponents(ListSize(components.size())));
  });
}

absl::StatusOr<std::vector<ComponentDigest>> DecodeComponents(absl::Span<const uint8_t> blob) {
  return DecodeBlob<std::vector<ComponentDigest>>(
      blob, schema::Blob::COMPONENTS,
      [](schema::Blob::Reader from, std::vector<ComponentDigest>& to) {
        return FieldReader().List(from.getComponents(), kMaxComponents, "components", to).Done();
      });
}

std::vector<uint8_t> EncodeRefusals(const std::vector<Refusal>& refusals) {
  return EncodeBlob([&](schema::Blob::Builder to) {
    WriteRefusals(refusals, to.initRefusals(RefusalListSize(refusals)));
  });
}

absl::StatusOr<std::vector<Refusal>> DecodeRefusals(absl::Span<const uint8_t> blob) {
  return DecodeBlob<std::vector<Refusal>>(
      blob, schema::Blob::REFUSALS, [](schema::Blob::Reader from, std::vector<Refusal>& to) {
        return FieldReader().List(from.getRefusals(), kMaxRefusals, "refusals", to).Done();
      });
}

}  // namespace lockstep::wire
