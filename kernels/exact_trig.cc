#include "kernels/exact_trig.h"

#include <cstdint>

namespace lockstep::kernels {
namespace {

// IEEE binary128: 113 significant bits, +, -, *, / correctly rounded by the compiler's runtime.
__extension__ typedef __float128 Quad;

// 2^exponent for |exponent| < 1000.
double PowerOfTwo(int exponent) {
  double value = 1;
  const double step = exponent < 0 ? 0.5 : 2.0;
  for (int i = exponent < 0 ? -exponent : exponent; i > 0; --i) value *= step;
  return value;
}

// ---- sine and cosine ----

// pi = 3 + the sum of kPi[i] * 2^(-32 * (i + 1)).
constexpr uint32_t kPi[] = {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822};

struct Reduced {
  int quadrant;  // n mod 4 where angle = n * pi/2 + rest
  Quad rest;     // |rest| <= pi/4 and a little
};

// How many quarter turns, by float64: one off at a boundary only lengthens `rest` by nothing that
// the series would notice.
double QuarterTurns(float angle) {
  constexpr double kTwoOverPi = 0x1.45F306DC9C883p-1;
  constexpr double kRoundToInteger = 0x1.8p52;
  return (static_cast<double>(angle) * kTwoOverPi + kRoundToInteger) - kRoundToInteger;
}

Reduced ReduceQuad(float angle) {
  const double turns = QuarterTurns(angle);
  // 2 * angle - turns * pi. turns < 2^24, so every product is exact, and until the last the
  // differences fit in 113 bits as well.
  Quad rest = 2 * static_cast<Quad>(angle) - static_cast<Quad>(turns) * 3;
  Quad unit = 1;
  for (const uint32_t word : kPi) {
    unit = unit / 4294967296.0;
    rest = rest - static_cast<Quad>(turns) * word * unit;
  }
  return {static_cast<int>(static_cast<int64_t>(turns) & 3), rest / 2};
}

// The series sum of (-1)^i x^(2i) / (2i + offset)!, offset 0 (cosine) or 1 (sine over x), to
// 2^-110 for |x| < 0.8.
Quad SeriesQuad(Quad x, int offset) {
  constexpr int kTerms = 16;
  const Quad square = x * x;
  Quad sum = 1;
  for (int i = kTerms; i > 0; --i) {
    sum = 1 - sum * square / ((2 * i + offset) * (2 * i + offset - 1));
  }
  return sum;
}

SinCosF32 SinCosQuad(float angle) {
  const Reduced r = ReduceQuad(angle);
  const Quad sine = r.rest * SeriesQuad(r.rest, 1);
  const Quad cosine = SeriesQuad(r.rest, 0);
  switch (r.quadrant) {
    case 0:
      return {static_cast<float>(sine), static_cast<float>(cosine)};
    case 1:
      return {static_cast<float>(cosine), static_cast<float>(-sine)};
    case 2:
      return {static_cast<float>(-sine), static_cast<float>(-cosine)};
    default:
      return {static_cast<float>(-cosine), static_cast<float>(sine)};
  }
}

// The same in float64; *rest is a head and a tail.
int ReduceDouble(float angle, double* head, double* tail) {
  // pi/2 in pieces of 29, 29 and 53 bits: turns * piece is exact for the first two.
  constexpr double kHalfPi1 = 0x1.921FB54p0;
  constexpr double kHalfPi2 = 0x1.10B4610p-30;
  constexpr double kHalfPi3 = 0x1.A62633145C06Ep-58;
  const double turns = QuarterTurns(angle);
  const double first = static_cast<double>(angle) - turns * kHalfPi1;
  const double second = turns * kHalfPi2;
  const double difference = first - second;
  const double back = difference - first;
  const double lost = (first - (difference - back)) - (second + back);
  const double rest = lost - turns * kHalfPi3;
  *head = difference + rest;
  *tail = rest - (*head - difference);
  return static_cast<int>(static_cast<int64_t>(turns) & 3);
}

double SineDouble(double x, double tail) {
  const double z = x * x;
  double q = -1.0 / 51090942171709440000.0;
  q = q * z + 1.0 / 121645100408832000.0;
  q = q * z - 1.0 / 355687428096000.0;
  q = q * z + 1.0 / 1307674368000.0;
  q = q * z - 1.0 / 6227020800.0;
  q = q * z + 1.0 / 39916800.0;
  q = q * z - 1.0 / 362880.0;
  q = q * z + 1.0 / 5040.0;
  q = q * z - 1.0 / 120.0;
  q = q * z + 1.0 / 6.0;
  return x - (x * z * q - tail * (1.0 - 0.5 * z));
}

double CosineDouble(double x, double tail) {
  const double z = x * x;
  double q = -1.0 / 1124000727777607680000.0;
  q = q * z + 1.0 / 2432902008176640000.0;
  q = q * z - 1.0 / 6402373705728000.0;
  q = q * z + 1.0 / 20922789888000.0;
  q = q * z - 1.0 / 87178291200.0;
  q = q * z + 1.0 / 479001600.0;
  q = q * z - 1.0 / 3628800.0;
  q = q * z + 1.0 / 40320.0;
  q = q * z - 1.0 / 720.0;
  q = q * z + 1.0 / 24.0;
  return 1.0 - (0.5 * z - (z * z * q - x * tail));
}

// The float64 values are within this much of the truth, relatively; their own error is 2^-51.
constexpr double kErrorBound = 0x1p-48;

// False when the truth may round to another float32 than the value.
bool RoundsSurely(double value, float* rounded) {
  *rounded = static_cast<float>(value);
  return static_cast<float>(value * (1 - kErrorBound)) == *rounded &&
         static_cast<float>(value * (1 + kErrorBound)) == *rounded;
}

// ---- power ----

// ln 2 to 113 bits and more.
Quad Ln2() {
  // 0.B17217F7 D1CF79AB C9E3B398 03F2F6AF in hexadecimal.
  constexpr uint32_t kWords[] = {0xB17217F7, 0xD1CF79AB, 0xC9E3B398, 0x03F2F6AF};
  Quad sum = 0;
  Quad unit = 1;
  for (const uint32_t word : kWords) {
    unit = unit / 4294967296.0;
    sum = sum + word * unit;
  }
  return sum;
}

// ln(x) for finite x >= 1, to about 2^-108 relatively.
Quad LogQuad(float x) {
  int exponent = 0;
  Quad mantissa = x;
  while (mantissa > 1.5) {
    mantissa = mantissa / 2;
    ++exponent;
  }
  // 2 artanh((m - 1) / (m + 1)), |argument| <= 1/5.
  const Quad s = (mantissa - 1) / (mantissa + 1);
  const Quad square = s * s;
  Quad sum = 0;
  for (int i = 25; i >= 0; --i) sum = sum * square + static_cast<Quad>(1) / (2 * i + 1);
  return exponent * Ln2() + 2 * s * sum;
}

}  // namespace

SinCosF32 ExactSinCos(float angle) {
  double head, tail;
  const int quadrant = ReduceDouble(angle, &head, &tail);
  SinCosF32 result;
  const double sine = SineDouble(head, tail);
  const double cosine = CosineDouble(head, tail);
  const bool swapped = quadrant % 2 == 1;
  const double sin = swapped ? cosine : sine;
  const double cos = swapped ? sine : cosine;
  const bool sure = RoundsSurely(quadrant < 2 ? sin : -sin, &result.sin) &
                    RoundsSurely(quadrant == 0 || quadrant == 3 ? cos : -cos, &result.cos);
  return sure ? result : SinCosQuad(angle);
}

float ExactInversePower(float base, int64_t numerator, int64_t denominator) {
  const Quad exponent = -LogQuad(base) * numerator / denominator;
  // e^exponent = 2^-shift * e^rest, 0 <= rest < ln 2 and a little.
  const int shift = static_cast<int>(static_cast<double>(-exponent / Ln2())) + 1;
  const Quad rest = exponent + shift * Ln2();
  Quad sum = 1;
  for (int i = 32; i > 0; --i) sum = 1 + sum * rest / i;
  return static_cast<float>(sum * PowerOfTwo(-shift));
}

}  // namespace lockstep::kernels
