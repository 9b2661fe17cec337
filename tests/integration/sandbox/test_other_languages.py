"""Go, Java, JavaScript, Lua, PHP, Ruby, Rust and TypeScript: ordinary programs, and how each end is told."""

import pytest
from builders.judge.sandbox import request, require_compiler, run_one

from evalrun_executor.executor import Executor
from evalrun_executor.private_files import ReplyWithFiles, RequestWithFiles
from evalrun_executor.toolchain import COMPILERS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

# ruff: noqa: E501 - tables of programs read best with a program a line
SUM = {
    "go": 'package main\nimport ("fmt"; "os")\nfunc main() { var a, b int; if n, _ := fmt.Scan(&a, &b); n != 2 { os.Exit(3) }; fmt.Println(a + b) }\n',
    "java": "import java.util.*;\nfinal class Run { public static void main(String[] args) { Scanner in = new Scanner(System.in);\n"
    "if (!in.hasNext()) System.exit(3); System.out.println(in.nextInt() + in.nextInt()); } }\n",
    "javascript": "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number);\nif (b === undefined) process.exit(3);\nconsole.log(a + b);\n",
    "lua": "local a, b = io.read('n', 'n')\nif not b then os.exit(3) end\nprint(a + b)\n",
    "php": "<?php\n[$a, $b] = fscanf(STDIN, '%d %d') ?: exit(3);\nif ($b === null) exit(3);\necho $a + $b, PHP_EOL;\n",
    "ruby": "a, b = gets&.split&.map(&:to_i)\nexit 3 if b.nil?\nputs a + b\n",
    "rust": "use std::io::Read;\nfn main() { let mut s = String::new(); std::io::stdin().read_to_string(&mut s).unwrap();\n"
    'let v: Vec<i64> = s.split_whitespace().map(|x| x.parse().unwrap()).collect(); if v.len() != 2 { std::process::exit(3); } println!("{}", v[0] + v[1]); }\n',
    "typescript": "import * as fs from 'fs';\ninterface Pair { a: number; b?: number }\nconst [a, b]: number[] = fs.readFileSync(0, 'utf8').split(' ').map(Number);\n"
    "const pair = { a, b } as Pair;\nif (pair.b === undefined) process.exit(3);\nconsole.log(pair.a + pair.b!);\n",
}

JAVA = "public class Main { static Object kept; static int f(int n) { return n == 0 ? 0 : 1 + f(n - 1); } static int g(int n) { return 1 + g(n + 1); } public static void main(String[] args) throws Exception { BODY } }"

ENDS: dict[str, tuple[str, str, str, int | None, bytes]] = {
    "java: deep recursion": ("java", JAVA.replace("BODY", 'System.out.println(f(300000));'), "exited", 0, b"300000\n"),
    "java: threads": ("java", JAVA.replace("BODY", 'Thread[] all = new Thread[50]; for (int i = 0; i < 50; i++) { all[i] = new Thread(() -> {}); all[i].start(); } for (Thread one : all) one.join(); System.out.println(50);'), "exited", 0, b"50\n"),
    "java: a thread with a large stack": ("java", JAVA.replace("BODY", 'Thread one = new Thread(null, () -> System.out.println(f(1000000)), "deep", 1 << 28); one.start(); one.join();'), "exited", 0, b"1000000\n"),
    "java: nearly all memory": ("java", JAVA.replace("BODY", 'byte[] all = new byte[200 << 20]; all[5] = 1; System.out.println(all.length);'), "exited", 0, b"209715200\n"),
    "java: garbage": ("java", JAVA.replace("BODY", 'for (int i = 0; i < 2000; i++) kept = new byte[1 << 20]; System.out.println(1);'), "exited", 0, b"1\n"),
    "java: an exception": ("java", JAVA.replace("BODY", 'throw new RuntimeException();'), "exited", 1, b""),
    "java: an exit": ("java", JAVA.replace("BODY", 'System.exit(7);'), "exited", 7, b""),
    "java: a loop": ("java", JAVA.replace("BODY", 'for (;;);'), "timeout", None, b""),
    "js: garbage": ("javascript", "let kept; for (let i = 0; i < 300; i++) kept = new Array(100000).fill(i + 0.5); console.log(1)", "exited", 0, b"1\n"),
    "js: the other name of stdin": ("javascript", "console.log(require('fs').readFileSync('/dev/stdin', 'utf8').length)", "exited", 0, b"4\n"),
    "js: lines": ("javascript", "const r = require('readline').createInterface({input: process.stdin}); let n = 0; r.on('line', () => n++); r.on('close', () => console.log(n));", "exited", 0, b"2\n"),
    "js: an async iterator": ("javascript", "(async () => { for await (const part of process.stdin) console.log(part.length); })();", "exited", 0, b"4\n"),
    "js: a module's syntax in an object": ("javascript", "import('fs').then(fs => console.log(fs.readFileSync(0).length))", "exited", 0, b"4\n"),
    "js: a timer": ("javascript", "setTimeout(() => console.log('late'), 20)", "exited", 0, b"late\n"),
    "js: a worker": ("javascript", "const {Worker} = require('worker_threads'); new Worker('1', {eval: true}).on('exit', () => console.log('joined'))", "exited", 0, b"joined\n"),
    "js: deep recursion": ("javascript", "const f = n => n ? 1 + f(n - 1) : 0; console.log(f(300000))", "exited", 0, b"300000\n"),
    "js: big integers": ("javascript", "console.log((2n ** 100n).toString())", "exited", 0, b"1267650600228229401496703205376\n"),
    "js: nearly all memory": ("javascript", "console.log(new Float64Array(30 << 20).fill(1).length)", "exited", 0, b"31457280\n"),
    "js: recursion without an end": ("javascript", "const f = n => 1 + f(n + 1); f(0)", "exited", 1, b""),
    "js: an error": ("javascript", "throw new Error('wrong')", "exited", 1, b""),
    "js: a rejected promise": ("javascript", "Promise.reject(new Error('wrong'))", "exited", 1, b""),
    "js: a syntax error": ("javascript", "let let = 3;", "exited", 1, b""),
    "js: an exit": ("javascript", "console.log('x'); process.exit(7)", "exited", 7, b"x\n"),
    "js: a loop": ("javascript", "for (;;);", "timeout", None, b""),
    "js: too much memory": ("javascript", "const a = []; for (;;) a.push(new Array(1000).fill(1.5));", "memory_limit", None, b""),
    "js: too many buffers": ("javascript", "const a = []; for (;;) a.push(Buffer.alloc(1 << 20, 1));", "memory_limit", None, b""),
    "go: goroutines": ("go", 'package main\nimport ("fmt"; "sync"; "sync/atomic")\nfunc main() { var w sync.WaitGroup; var n int64; for i := 0; i < 1000; i++ { w.Add(1); go func() { atomic.AddInt64(&n, 1); w.Done() }() }; w.Wait(); fmt.Println(n) }\n', "exited", 0, b"1000\n"),
    "go: deep recursion": ("go", 'package main\nimport "fmt"\nfunc f(n int) int { if n == 0 { return 0 }; return 1 + f(n-1) }\nfunc main() { fmt.Println(f(1000000)) }\n', "exited", 0, b"1000000\n"),
    "go: nearly all memory": ("go", 'package main\nimport "fmt"\nfunc main() { a := make([]byte, 240<<20); for i := range a { a[i] = 1 }; fmt.Println(len(a)) }\n', "exited", 0, b"251658240\n"),
    "go: a panic": ("go", 'package main\nfunc main() { panic("wrong") }\n', "exited", 2, b""),
    "go: a nil pointer": ("go", "package main\nfunc main() { var p *int; *p = 1 }\n", "exited", 2, b""),
    "go: a deadlock": ("go", "package main\nfunc main() { c := make(chan int); <-c }\n", "exited", 2, b""),
    "go: an exit": ("go", 'package main\nimport "os"\nfunc main() { os.Exit(7) }\n', "exited", 7, b""),
    "go: a loop": ("go", "package main\nfunc main() { for {} }\n", "timeout", None, b""),
    "go: too much memory": ("go", "package main\nvar kept [][]int\nfunc main() { for { a := make([]int, 100000); for i := range a { a[i] = i }; kept = append(kept, a) } }\n", "memory_limit", None, b""),
    "lua: lines": ("lua", "local n = 0 for line in io.lines() do n = n + #line end print(n)", "exited", 0, b"2\n"),
    "lua: deep recursion": ("lua", "local function f(n) return n == 0 and 0 or 1 + f(n - 1) end print(f(150000))", "exited", 0, b"150000\n"),
    "lua: big integers wrap": ("lua", "print(math.maxinteger + 1 == math.mininteger)", "exited", 0, b"true\n"),
    "lua: garbage": ("lua", "local kept for i = 1, 500 do kept = ('x'):rep(1024):rep(1024) .. i end print(1)", "exited", 0, b"1\n"),
    "lua: nearly all memory": ("lua", "local s = ('x'):rep(1 << 20):rep(110) print(#s)", "exited", 0, b"115343360\n"),
    "lua: an error": ("lua", "error('wrong')", "exited", 1, b""),
    "lua: a syntax error": ("lua", "local local = 3", "exited", 1, b""),
    "lua: recursion without an end": ("lua", "local function f(n) return 1 + f(n + 1) end f(0)", "exited", 1, b""),
    "lua: an exit": ("lua", "print('x') os.exit(7)", "exited", 7, b"x\n"),
    "lua: a loop": ("lua", "while true do end", "timeout", None, b""),
    "lua: too much memory": ("lua", "local t = {} for i = 1, 1 << 40 do t[i] = {i} end", "memory_limit", None, b""),
    "php: lines": ("php", "<?php echo count(file('php://stdin')), PHP_EOL;", "exited", 0, b"2\n"),
    "php: its libraries": ("php", "<?php echo ctype_digit('12') ? 1 : 0, mb_strlen('é'), json_encode([1]), bcadd('1', '2'), gmp_strval(gmp_pow(2, 100)), preg_match('/a+/', 'aa'), PHP_EOL;", "exited", 0, b"11[1]312676506002282294014967032053761\n"),
    "php: the other ways to read": ("php", "<?php $n = (int) readline(); echo $n + (int) stream_get_contents(STDIN), iconv_strlen('é'), PHP_EOL;", "exited", 0, b"31\n"),
    "php: deep recursion": ("php", "<?php function f($n) { return $n ? 1 + f($n - 1) : 0; } echo f(300000), PHP_EOL;", "exited", 0, b"300000\n"),
    "php: garbage": ("php", "<?php for ($i = 0; $i < 3000; $i++) $kept = str_repeat('x', 1 << 20) . $i; echo 1, PHP_EOL;", "exited", 0, b"1\n"),
    "php: nearly all memory": ("php", "<?php $s = str_repeat('x', 230 << 20); echo strlen($s), PHP_EOL;", "exited", 0, b"241172480\n"),
    "php: a warning is no output": ("php", "<?php echo $none, 1, PHP_EOL;", "exited", 0, b"1\n"),
    "php: an exception": ("php", "<?php throw new Exception('wrong');", "exited", 255, b""),
    "php: a syntax error": ("php", "<?php $ = 3;", "exited", 255, b""),
    "php: an exit": ("php", "<?php echo 'x', PHP_EOL; exit(7);", "exited", 7, b"x\n"),
    "php: a loop": ("php", "<?php for (;;);", "timeout", None, b""),
    "php: too much memory": ("php", "<?php $a = []; for (;;) $a[] = str_repeat('x', 1000);", "memory_limit", None, b""),
    "ruby: lines": ("ruby", "puts STDIN.each_line.count", "exited", 0, b"2\n"),
    "ruby: its libraries": ("ruby", "require 'set'; require 'prime'; require 'json'; require 'bigdecimal'; puts Prime.first(3).to_set.to_a.to_json, 2**100, Rational(1, 3)", "exited", 0, b"[2,3,5]\n1267650600228229401496703205376\n1/3\n"),
    "ruby: threads": ("ruby", "puts 10.times.map { |n| Thread.new { n } }.sum(&:value)", "exited", 0, b"45\n"),
    "ruby: deep recursion": ("ruby", "def f(n) = n == 0 ? 0 : 1 + f(n - 1)\nputs f(140000)", "exited", 0, b"140000\n"),
    "ruby: deep recursion in blocks": ("ruby", "def f(n) = n == 0 ? 0 : 1 + [n].map { f(n - 1) }[0]\nputs f(20000)", "exited", 0, b"20000\n"),
    "ruby: garbage": ("ruby", "3000.times { |n| $kept = 'x' * (1 << 20) }; puts 1", "exited", 0, b"1\n"),
    "ruby: nearly all memory": ("ruby", "s = 'x' * (230 << 20); puts s.size", "exited", 0, b"241172480\n"),
    "ruby: recursion without an end": ("ruby", "def f(n) = 1 + f(n + 1)\nf(0)", "exited", 1, b""),
    "ruby: an error": ("ruby", "raise 'wrong'", "exited", 1, b""),
    "ruby: a syntax error": ("ruby", "def = 3", "exited", 1, b""),
    "ruby: an exit": ("ruby", "puts 'x'; exit 7", "exited", 7, b"x\n"),
    "ruby: a loop": ("ruby", "loop {}", "timeout", None, b""),
    "ruby: too much memory": ("ruby", "a = []; loop { a << 'x' * 1000 }", "memory_limit", None, b""),
    "rust: a thread": ("rust", 'fn main() { println!("{}", std::thread::spawn(|| 5).join().unwrap()); }', "exited", 0, b"5\n"),
    "rust: deep recursion": ("rust", 'fn f(n: u64, v: &mut Vec<u64>) -> u64 { if n == 0 { return 0; } v[0] += n; let r = 1 + f(n - 1, v); v[0] -= 1; r } fn main() { println!("{}", f(100000, &mut vec![0])); }', "exited", 0, b"100000\n"),
    "rust: nearly all memory": ("rust", 'fn main() { let v = vec![1u8; 250 << 20]; println!("{}", v.iter().map(|&x| x as u64).sum::<u64>()); }', "exited", 0, b"262144000\n"),
    "rust: a panic": ("rust", "fn main() { let v: Vec<i32> = std::env::args().skip(1).map(|_| 1).collect(); println!(\"{}\", v[0]); }", "exited", 101, b""),
    "rust: an exit": ("rust", "fn main() { std::process::exit(7); }", "exited", 7, b""),
    "rust: an abort": ("rust", "fn main() { std::process::abort(); }", "exited", -6, b""),
    "rust: a loop": ("rust", "fn main() { let mut n = 0u64; loop { n += 1; if n == 0 { println!(); } std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst); } }", "timeout", None, b""),
    "rust: too much memory": ("rust", "fn main() { let mut v = vec![]; loop { v.push(vec![1u8; 1 << 20]); if v.len() == usize::MAX { println!(\"{}\", v[0][0]); } } }", "memory_limit", None, b""),
}  # fmt: skip
"""By name: language, program, end, exit code and output, with 256 MiB, two seconds and the input `1\n2\n`."""

WRONG = {
    "java": ("public class Main { int x = ; }", b"Main.java:1"),
    "go": ("package main\nfunc main() { x := 1 }\n", b"main.go:2"),
    "rust": ("fn main() { let x: i32 = true; }", b"main.rs:1"),
    "typescript": ("const a: number = 1;\nlet let: = 3;\n", b"main.ts:2"),
}
"""A program that does not compile, and what the message names."""


@pytest.mark.parametrize("language", SUM)
async def test_a_program_runs_on_each_input(executor: Executor, language: str) -> None:
    require_compiler(COMPILERS[language])
    reply = await executor.run(request(SUM[language], b"1 2", b"40 2", b"", language=language))
    assert reply.compile.status == "ok"
    assert [(run.stdout.strip(), run.exit_code) for run in reply.runs] == [(b"3", 0), (b"42", 0), (b"", 3)]


@pytest.mark.parametrize("name", ENDS)
async def test_end_of_a_program_is_reported(executor: Executor, name: str) -> None:
    language, code, end, exit_code, stdout = ENDS[name]
    require_compiler(COMPILERS[language])
    run = await run_one(executor, code, b"1\n2\n", language=language, memory=256, seconds=2.0)
    assert (run.end, run.exit_code, run.stdout) == (end, exit_code, stdout), run.stderr.decode()


async def test_full_heap_of_java_is_a_memory_limit(executor: Executor) -> None:
    require_compiler(COMPILERS["java"])
    body = "java.util.List<long[]> all = new java.util.ArrayList<>(); for (;;) all.add(new long[10000]);"
    run = await run_one(executor, JAVA.replace("BODY", body), language="java", memory=256)
    assert run.end == "memory_limit"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a class of another name",
            "// the class solves it\nclass Helper { }\npublic class Solution {\n  static class Node { }\nMAIN}\n",
        ),
        ("no public class", "class Helper { }\nfinal class Run {\n  static class Node { }\nMAIN}\n"),
        ("a package", "package my.own;\npublic class Main {\nMAIN}\n"),
    ],
)
async def test_main_class_of_java_is_found(executor: Executor, name: str, text: str) -> None:
    require_compiler(COMPILERS["java"])
    main = "  public static void main(String[] args) { System.out.println(5); }\n"
    run = await run_one(executor, text.replace("MAIN", main), language="java")
    assert run.stdout == b"5\n", name


@pytest.mark.parametrize("language", WRONG)
async def test_compile_error_of_compiled_language_names_the_line(executor: Executor, language: str) -> None:
    require_compiler(COMPILERS[language])
    code, place = WRONG[language]
    reply = await executor.run(request(code, language=language))
    assert reply.compile.status == "error"
    assert place in reply.compile.stderr
    assert reply.runs[0].end == "not_run"


async def test_javascript_program_finds_the_files_placed_beside_it(executor: Executor) -> None:
    require_compiler(COMPILERS["javascript"])
    code = "require('fs').writeFileSync('made', require('./part.js').word); console.log(require('./part.js').word)"
    asked = RequestWithFiles(
        "javascript", code, [b""], request("").limits, files={"part.js": b"exports.word = 'found'"}, fetch=["made"]
    )
    reply = await executor.run(asked)
    assert isinstance(reply, ReplyWithFiles)
    assert (reply.runs[0].stdout, reply.files) == (b"found\n", {"made": b"found"})
