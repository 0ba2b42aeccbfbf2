// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside: `translate`, and `eval` of text, with
// what a small run has left.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"
#include "translate/test_run.h"

namespace thimble {
namespace {

using translate::PrepareTestText;
using translate::TrainTestRun;

class TranslateCli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder;
    text_ = folder_->File("text");
    run_ = folder_->File("run");
    PrepareTestText(text_);
    TrainTestRun(text_, run_, {}, 60);
  }
  static void TearDownTestSuite() { delete folder_; }

  // With `text` as standard input.
  CliResult Translate(const std::string& text, const Args& more = {}) {
    const std::string in = folder_->File("in");
    WriteTestFile(in, text);
    return RunCli(
        Args{"translate", "--from", run_, "--max-length", "20"} + more, [in] {
          const int fd = open(in.c_str(), O_RDONLY);
          dup2(fd, STDIN_FILENO);
        });
  }

  static TestFolder* folder_;
  static std::string text_, run_;
};

TestFolder* TranslateCli::folder_ = nullptr;
std::string TranslateCli::text_, TranslateCli::run_;

TEST_F(TranslateCli, TranslatesLineByLine) {
  for (const Args& more :
       {Args{}, Args{"--beam", "1"}, Args{"--batch", "1", "--threads", "2"},
        Args{"--average", "1"}, Args{"--length-penalty", "0.5"}}) {
    const CliResult result = Translate("a\n\nb c\nd d\n", more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "A\n\nC B\nD D\n");
    EXPECT_EQ(result.err, "");
  }
  EXPECT_EQ(Translate("").out, "");
  const CliResult best = Translate("b c\n", {"--beam", "3", "--nbest", "2"});
  EXPECT_EQ(std::ranges::count(best.out, '\n'), 2) << best.out;
  EXPECT_TRUE(best.out.starts_with("1\t-0.")) << best.out;
  const CliResult stats = Translate("b c\n", {"--stats"});
  EXPECT_EQ(stats.out, "C B\n");
  EXPECT_TRUE(stats.err.starts_with("1 lines, 2 source tokens, 2 target"))
      << stats.err;
}

TEST_F(TranslateCli, KeepsWhatItHasTranslatedBeforeALineThatIsNone) {
  std::string long_line;
  for (int i = 0; i < 10000; ++i) long_line += "a ";
  for (const auto& [line, says] :
       {std::pair<std::string, std::string>("\x80\xff", "is not UTF-8"),
        {long_line,
         "10001 tokens, its end counted, more than the 1024 of "
         "--max-source"}}) {
    const CliResult result = Translate("a\n" + line + "\nb\n");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "A\n");
    EXPECT_TRUE(result.err.starts_with("thimble: line 2 of the input "));
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  }
}

TEST_F(TranslateCli, SaysThatNobodyReads) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "a b\n";
  const std::string in = folder_->File("in");
  WriteTestFile(in, text);
  int out[2];
  ASSERT_EQ(pipe(out), 0);
  close(out[0]);
  const CliResult result =
      RunCli({"translate", "--from", run_, "--beam", "1"}, [&] {
        dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
      });
  close(out[1]);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "thimble: the output could not be written to its end: Broken "
            "pipe\n");
}

TEST_F(TranslateCli, EndsOnAnInterrupt) {
  int in[2];
  ASSERT_EQ(pipe(in), 0);
  const std::string out = folder_->File("interrupted");
  const int pid = StartCli({"translate", "--from", run_}, out,
                           [&] { dup2(in[0], STDIN_FILENO); });
  ASSERT_EQ(write(in[1], "a\n", 2), 2);
  for (int i = 0; i < 3000 && ReadWholeFile(out).empty(); ++i) usleep(10000);
  EXPECT_EQ(ReadWholeFile(out), "A\n");
  kill(pid, SIGINT);
  EXPECT_EQ(WaitCli(pid), -1);
  close(in[0]);
  close(in[1]);
}

TEST_F(TranslateCli, RefusesWhatCannotBe) {
  const Args from = {"translate", "--from", run_};
  ExpectRefused({"translate", "--from", folder_->File("none")}, 1,
                "weights.safetensors is not there; give the folder");
  ExpectRefused(from + Args{"--beam", "0"}, 2, "--beam");
  ExpectRefused(from + Args{"--beam", "2", "--nbest", "3"}, 2, "--nbest");
  ExpectRefused(from + Args{"--average", "9"}, 1, "--keep-epochs");
  ExpectRefused({"translate"}, 2, "--from");
  const CliResult refused = RunCli(from + Args{"--budget", "1kB"});
  EXPECT_EQ(refused.exit_code, 1);
  const std::string needs =
      WordAfter(Translate("b c\n", {"--budget", "1kB"}).err, " needs ");
  EXPECT_EQ(Translate("b c\n", {"--budget", needs}).out, "C B\n");
}

TEST_F(TranslateCli, EvalGivesBleuAndPerplexity) {
  const Args eval = {"eval", "--from", run_, "--data", text_};
  const CliResult result = RunCli(eval + Args{"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = LastLine(result.out);
  EXPECT_EQ(json["tokens"], 29);  // of 23 words and 6 ends
  EXPECT_EQ(json["test_sentences"], 6);
  EXPECT_EQ(json["reference_words"], 23);
  EXPECT_FLOAT_EQ(json["test_perplexity"].get<float>(),
                  std::exp(json["test_nll"].get<float>()));
  EXPECT_GE(json["test_bleu"].get<double>(), 0);
  EXPECT_LE(json["test_bleu"].get<double>(), 100);
  const CliResult beam = RunCli(eval + Args{"--beam", "4", "--average", "2"});
  EXPECT_EQ(beam.exit_code, 0) << beam.err;
  EXPECT_NE(beam.out.find("BLEU "), std::string::npos) << beam.out;
  EXPECT_NE(beam.out.find("(perplexity "), std::string::npos) << beam.out;
}

TEST_F(TranslateCli, EvalRefusesWhatHasNoEffect) {
  ExpectRefused({"eval", "--from", run_, "--data", text_, "--validation", "9"},
                2, "--validation");
  ExpectRefused({"eval", "--from", run_, "--data", "synthetic", "--beam", "2"},
                2, "--beam");
}

TEST_F(TranslateCli, ExportWritesTheMeanOfEpochs) {
  const std::string to = folder_->File("mean.safetensors");
  const CliResult result =
      RunCli({"export", run_, "--average", "2", "--dense", to});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(RunCli({"inspect", to}).exit_code, 0);
  ExpectRefused({"export", run_, "--average", "3", "--dense", to}, 1,
                "keeps the weights of 2 epochs");
}

}  // namespace
}  // namespace thimble
