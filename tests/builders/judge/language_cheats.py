"""Programs in JavaScript, Go, Java, Rust, Ruby, PHP and Lua that want anything but to solve the problem, and what becomes of each.

A program tries one act after another and prints, for each, its number and `done` or `refused`.
"""

# ruff: noqa: E501 - tables of programs read best with a program a line

from dataclasses import dataclass
from pathlib import Path

PATHS_TO_READ = (
    "/etc/passwd", "/etc/shadow", "/root", "/", "/home", "/tmp", "/proc", "/proc/self/status", "/proc/self/maps",
    "/proc/self/environ", "/proc/self/mem", "/proc/1/environ", "/proc/1/cmdline", "/proc/PARENT/mem",
    "/proc/PARENT/cmdline", "/proc/PARENT/environ", "/proc/PARENT/fd", "/sys", "/dev/shm", "/dev/tty", "../..",
    "../source", "../../slot-1", "/run", "/var/lib",
)  # fmt: skip
"""None may be read; PARENT stands for the parent's process id."""

PATHS_TO_WRITE = (
    "/tmp/escaped", "/dev/shm/escaped", "../escaped", "../script/main.js", "../source/main.py", "/usr/lib/escaped",
    "/etc/passwd", "/proc/self/oom_score_adj", "/proc/self/mem", "/proc/PARENT/mem",
)  # fmt: skip
"""None may be opened for writing."""

JAVASCRIPT_ACTS = (
    "fs.mkdirSync('../escaped')",
    "(fs.writeFileSync('x', ''), fs.renameSync('x', '/tmp/escaped'))",
    "fs.symlinkSync('/etc/passwd', 'link')",
    "fs.linkSync('/usr/bin/node', 'link')",
    "fs.chmodSync('..', 0o777)",
    "fs.chownSync('.', 0, 0)",
    "fs.utimesSync('..', 0, 0)",
    "fs.rmSync(__filename)",
    "fs.appendFileSync(__filename, '//')",
    "child.execSync('id', {stdio: 'pipe'})",
    "child.execFileSync(process.execPath, ['-v'])",
    "fails(child.spawnSync('/bin/true'))",
    "event(child.spawn('/bin/true'), 'spawn')",
    "event(child.fork(__filename), 'spawn')",
    "process.kill(process.ppid, 0)",
    "process.kill(process.ppid, 'SIGKILL')",
    "process.kill(1, 0)",
    "process.kill(-1, 'SIGTERM')",
    "process.kill(process.pid, 'SIGKILL')",
    "process.kill(process.pid, 'SIGSTOP')",
    "process.setuid(0)",
    "process.setgroups([0])",
    "os.setPriority(0, -5)",
    "event(net.connect(80, '127.0.0.1'), 'connect')",
    "event(net.connect('/run/docker.sock'), 'connect')",
    "event(net.connect('\\0evalrun'), 'connect')",
    "event(net.createServer().listen(0), 'listening')",
    "event(net.createServer().listen('socket'), 'listening')",
    "event(dgram.createSocket('udp4').bind(0), 'listening')",
    "require('dns').promises.lookup('example.com')",
    "fetch('http://127.0.0.1:80/')",
    "inspected(require('inspector').open(0))",
    "require('v8').writeHeapSnapshot('/tmp/escaped')",
)
JAVASCRIPT = """
const fs = require('fs'), child = require('child_process'), net = require('net'), dgram = require('dgram'), os = require('os');
const fails = (end) => { if (end.error) throw end.error; };
const inspected = () => { if (!require('inspector').url()) throw new Error('not open'); };
const event = (emitter, name) => new Promise((done, refused) => { emitter.on(name, done); emitter.on('error', refused); });
const read = (path) => fs.statSync(path).isDirectory() ? fs.readdirSync(path) : fs.readFileSync(path);
const acts = [ACTS];
(async () => {
  for (const [number, act] of acts.entries()) {
    try { await act(); console.log(number, 'done'); } catch { console.log(number, 'refused'); }
  }
  process.exit(0);
})();
"""

GO_ACTS = (
    'os.Mkdir("../escaped", 0o700)',
    "renamed()",
    'os.Symlink("/etc/passwd", "link")',
    'os.Link("/usr/bin/env", "link")',
    'os.Chmod("..", 0o777)',
    'os.Chown(".", 0, 0)',
    'syscall.Mkfifo("pipe", 0o600)',
    'syscall.Mknod("device", 0o20600, 0x101)',
    'exec.Command("/bin/true").Run()',
    'exec.Command("/usr/bin/go", "version").Run()',
    'syscall.Exec("/bin/true", []string{"true"}, nil)',
    "started()",
    "syscall.Kill(os.Getppid(), 0)",
    "syscall.Kill(os.Getppid(), 9)",
    "syscall.Kill(1, 0)",
    "syscall.Kill(-1, 15)",
    "syscall.Kill(os.Getpid(), 9)",
    "syscall.Kill(os.Getpid(), 19)",
    "syscall.PtraceAttach(os.Getppid())",
    "syscall.Setuid(0)",
    'syscall.Chroot(".")',
    'syscall.Mount("none", ".", "tmpfs", 0, "")',
    "syscall.Unshare(syscall.CLONE_NEWUSER)",
    "syscall.Setpriority(0, 0, -5)",
    "syscall.Setrlimit(9, &syscall.Rlimit{Cur: 1 << 40, Max: 1 << 40})",
    "syscall.Setrlimit(2, &syscall.Rlimit{Cur: 1 << 40, Max: 1 << 40})",
    "raw(319, 0, 0, 0)",  # memfd_create
    "raw(29, 0, 4096, 0o1600)",  # shmget
    "raw(425, 1, 0, 0)",  # io_uring_setup
    "raw(321, 0, 0, 0)",  # bpf
    "raw(310, uintptr(os.Getppid()), 0, 0)",  # process_vm_readv
    "raw(438, 3, 0, 0)",  # pidfd_getfd
    "raw(58, 0, 0, 0)",  # vfork
    "raw(9, 0, 4096, 3)",  # mmap of a shared kind that has no file
    'dialled("tcp", "127.0.0.1:80")',
    'dialled("udp", "127.0.0.1:53")',
    'dialled("unix", "/run/docker.sock")',
    'listening("tcp", "127.0.0.1:0")',
    'listening("unix", "socket")',
    "looked()",
)
GO = """package main

import ("fmt"; "net"; "os"; "os/exec"; "strings"; "strconv"; "syscall")

func renamed() error { os.WriteFile("x", nil, 0o600); return os.Rename("x", "/tmp/escaped") }
func started() error { _, err := os.StartProcess("/bin/true", nil, &os.ProcAttr{}); return err }
func raw(number, a, b, c uintptr) error {
	flags := uintptr(0); if number == 9 { flags = 0x21 }
	result, _, failed := syscall.RawSyscall6(number, a, b, c, flags, ^uintptr(0), 0)
	if failed != 0 { return failed }
	if number == 58 && result == 0 { syscall.Exit(0) }
	return nil
}
func dialled(kind, address string) error { _, err := net.Dial(kind, address); return err }
func listening(kind, address string) error { _, err := net.Listen(kind, address); return err }
func looked() error { _, err := net.LookupHost("example.com"); return err }
func read(path string) error {
	path = strings.Replace(path, "PARENT", strconv.Itoa(os.Getppid()), 1)
	found, err := os.Stat(path); if err != nil { return err }
	if found.IsDir() { _, err = os.ReadDir(path) } else { _, err = os.ReadFile(path) }
	return err
}
func write(path string) error {
	path = strings.Replace(path, "PARENT", strconv.Itoa(os.Getppid()), 1)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600); if err == nil { file.Close() }
	return err
}
func main() {
	acts := []func() error{ACTS}
	for number, act := range acts {
		if act() == nil { fmt.Println(number, "done") } else { fmt.Println(number, "refused") }
	}
}
"""

JAVA_ACTS = (
    'Files.createDirectory(Path.of("../escaped"))',
    'Files.move(Files.createFile(Path.of("x")), Path.of("/tmp/escaped"))',
    'Files.createSymbolicLink(Path.of("link"), Path.of("/etc/passwd"))',
    'Files.createLink(Path.of("link"), Path.of("/usr/bin/env"))',
    'Files.setPosixFilePermissions(Path.of(".."), PosixFilePermissions.fromString("rwxrwxrwx"))',
    'Files.setLastModifiedTime(Path.of(".."), FileTime.fromMillis(0))',
    'Files.delete(Path.of(System.getProperty("java.class.path")))',
    'Files.write(Path.of(System.getProperty("java.class.path")), new byte[1])',
    'new ProcessBuilder("/bin/true").start()',
    'Runtime.getRuntime().exec("id")',
    'Runtime.getRuntime().exec(System.getProperty("java.home") + "/bin/java")',
    "ended(ProcessHandle.current().parent().get().destroyForcibly())",
    "ended(ProcessHandle.of(1).get().destroy())",
    'new Socket("127.0.0.1", 80)',
    "new ServerSocket(0)",
    "new DatagramSocket()",
    'SocketChannel.open(UnixDomainSocketAddress.of("/run/docker.sock"))',
    'ServerSocketChannel.open(StandardProtocolFamily.UNIX).bind(UnixDomainSocketAddress.of("socket"))',
    'InetAddress.getByName("example.com")',
    'new URL("http://127.0.0.1/").openStream()',
    'new URL("file:///etc/passwd").openStream()',
    'HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create("http://127.0.0.1/")).build(), HttpResponse.BodyHandlers.ofString())',
    'ended(ToolProvider.findFirst("jar").get().run(System.out, System.err, "--create", "--file", "/tmp/escaped.jar", ".") == 0)',
    'ended(javax.tools.ToolProvider.getSystemJavaCompiler().run(null, null, null, "-d", "/tmp", "/etc/passwd") == 0)',
    'opened(String.class.getDeclaredField("value"))',
    'opened(Class.forName("java.lang.System").getDeclaredField("security"))',
    'opened(ClassLoader.class.getDeclaredMethod("defineClass", String.class, byte[].class, int.class, int.class))',
    'load("/tmp/evil.so")',
    'load("/etc/passwd")',
    'FileSystems.newFileSystem(Path.of("/etc/passwd"))',
    'new RandomAccessFile("/proc/self/mem", "rw")',
    "dumped()",
)
JAVA = """
import java.io.*; import java.lang.management.*; import java.lang.reflect.*; import java.net.*; import java.net.http.*;
import java.nio.channels.*; import java.nio.file.*; import java.nio.file.attribute.*; import java.util.spi.ToolProvider;
public class Main {
    interface Act { void run() throws Throwable; }
    static void ended(boolean done) throws Exception { if (!done) throw new Exception(); }
    static Object opened(AccessibleObject one) { one.setAccessible(true); return one; }
    static Object load(String path) { System.load(path); return path; }
    static Object dumped() throws Exception {
        ManagementFactory.getPlatformMXBean(com.sun.management.HotSpotDiagnosticMXBean.class).dumpHeap("/tmp/escaped.hprof", false);
        return 1;
    }
    static Path place(String path) { return Path.of(path.replace("PARENT", "" + ProcessHandle.current().parent().map(ProcessHandle::pid).orElse(1L))); }
    static Object read(String path) throws Exception {
        try (InputStream in = Files.isDirectory(place(path)) ? null : Files.newInputStream(place(path))) {
            return in == null ? Files.list(place(path)).count() : in.read();
        }
    }
    static Object write(String path) throws Exception { Files.newOutputStream(place(path)).close(); return 1; }
    public static void main(String[] args) {
        Act[] acts = {ACTS};
        for (int number = 0; number < acts.length; number++) {
            try { acts[number].run(); System.out.println(number + " done"); }
            catch (Throwable refused) { System.out.println(number + " refused"); }
        }
        System.exit(0);
    }
}
"""

RUST_ACTS = (
    'std::fs::create_dir("../escaped").is_ok()',
    '{ let _ = std::fs::write("x", ""); std::fs::rename("x", "/tmp/escaped").is_ok() }',
    'std::os::unix::fs::symlink("/etc/passwd", "link").is_ok()',
    'std::fs::hard_link("/usr/bin/env", "link").is_ok()',
    'std::fs::set_permissions("..", std::fs::Permissions::from_mode(0o777)).is_ok()',
    'Command::new("/bin/true").status().is_ok()',
    'Command::new("/usr/bin/rustc").status().is_ok()',
    'Command::new("/proc/self/exe").status().is_ok()',
    'TcpStream::connect("127.0.0.1:80").is_ok()',
    'TcpListener::bind("127.0.0.1:0").is_ok()',
    'UdpSocket::bind("127.0.0.1:0").is_ok()',
    'UnixStream::connect("/run/docker.sock").is_ok()',
    'UnixListener::bind("socket").is_ok()',
    "UnixDatagram::unbound().is_ok()",
    '"example.com:80".to_socket_addrs().is_ok()',
    "call(62, parent, 0, 0)",  # kill
    "call(62, parent, 9, 0)",
    "call(62, 1, 0, 0)",
    "call(62, -1, 15, 0)",
    "call(62, own, 9, 0)",
    "call(62, own, 19, 0)",
    "call(101, 16, parent, 0)",  # ptrace
    "call(105, 0, 0, 0)",  # setuid
    "call(161, DOT, 0, 0)",  # chroot
    "call(272, 0x10000000, 0, 0)",  # unshare
    "call(141, 0, 0, -5)",  # setpriority
    "call(319, DOT, 0, 0)",  # memfd_create
    "call(29, 0, 4096, 0o1600)",  # shmget
    "call(425, 1, 0, 0)",  # io_uring_setup
    "call(321, 0, 0, 0)",  # bpf
    "call(310, parent, 0, 0)",  # process_vm_readv
    "call(438, 3, 0, 0)",  # pidfd_getfd
    "call(41, 2, 1, 0)",  # socket
    "call(133, DOT, 0o10600, 0)",  # mknod
    "call(90, DOT, 0o777, 0)",  # chmod
    "call(92, DOT, 0, 0)",  # chown
    "call(57, 0, 0, 0)",  # fork
    "call(59, DOT, 0, 0)",  # execve
    "call(322, 3, DOT, 0)",  # execveat
    "call(253, 0, 0, 0)",  # inotify_init
)
RUST = """
use std::io::Read; use std::net::*; use std::os::unix::fs::PermissionsExt; use std::os::unix::net::*; use std::process::Command;
extern "C" { fn syscall(number: i64, a: i64, b: i64, c: i64, d: i64, e: i64, f: i64) -> i64; fn getppid() -> i32; fn getpid() -> i32; }
fn call(number: i64, a: i64, b: i64, c: i64) -> bool {
    let result = unsafe { syscall(number, a, b, c, 0, 0, 0) };
    if number == 57 && result == 0 { std::process::exit(0); }
    result >= 0
}
fn place(path: &str) -> String { path.replace("PARENT", &unsafe { getppid() }.to_string()) }
fn read(path: &str) -> bool {
    let path = place(path);
    if std::path::Path::new(&path).is_dir() { return std::fs::read_dir(path).is_ok(); }
    match std::fs::File::open(path) { Ok(mut file) => file.read(&mut [0u8; 1]).is_ok(), Err(_) => false }
}
fn write(path: &str) -> bool { std::fs::OpenOptions::new().write(true).create(true).open(place(path)).is_ok() }
fn main() {
    let (parent, own) = unsafe { (getppid() as i64, getpid() as i64) };
    #[allow(non_snake_case)] let DOT = b".\\0".as_ptr() as i64;
    let _ = (parent, own, DOT);
    let acts: Vec<Box<dyn Fn() -> bool>> = vec![ACTS];
    for (number, act) in acts.iter().enumerate() { println!("{} {}", number, if act() { "done" } else { "refused" }); }
}
"""


RUBY_ACTS = (
    "Dir.mkdir('../escaped')",
    "(File.write('x', ''); File.rename('x', '/tmp/escaped'))",
    "File.symlink('/etc/passwd', 'link')",
    "File.link('/usr/bin/env', 'link')",
    "File.chmod(0777, '..')",
    "File.chown(0, 0, '.')",
    "File.utime(0, 0, '..')",
    "File.mkfifo('pipe')",
    "File.delete(__FILE__)",
    "File.open(__FILE__, 'a')",
    "system('true')",
    "`id`",
    "exec('/bin/true')",
    "fork { exit! }",
    "Process.spawn('/bin/true')",
    "IO.popen('id')",
    "Process.kill(0, Process.ppid)",
    "Process.kill(:KILL, Process.ppid)",
    "Process.kill(0, 1)",
    "Process.kill(:TERM, -1)",
    "called(62, $$, 9)",  # kill, whose refusal Process.kill does not tell for its own process
    "called(62, $$, 19)",
    "Process::UID.change_privilege(0)",
    "Process.setpriority(Process::PRIO_PROCESS, 0, -5)",
    "Process.setrlimit(:DATA, 1 << 40)",
    "Process.setrlimit(:AS, 1 << 40)",
    "Dir.chroot('.')",
    "TCPSocket.new('127.0.0.1', 80)",
    "TCPServer.new('127.0.0.1', 0)",
    "UDPSocket.new",
    "UNIXSocket.new('/run/docker.sock')",
    "UNIXServer.new('socket')",
    "Addrinfo.getaddrinfo('example.com', 80)",
    "Fiddle.dlopen('/tmp/evil.so')",
    "Fiddle.dlopen('/etc/passwd')",
    "called(57)",  # fork
    "called(58)",  # vfork
    "called(59, '/bin/true', 0, 0)",  # execve
    "called(41, 2, 1, 0)",  # socket
    "called(101, 16, Process.ppid, 0, 0)",  # ptrace
    "called(310, Process.ppid, 0, 0, 0, 0, 0)",  # process_vm_readv
    "called(319, 'x', 0)",  # memfd_create
    "called(29, 0, 4096, 0o1600)",  # shmget
    "called(425, 1, 0)",  # io_uring_setup
    "called(321, 0, 0, 0)",  # bpf
    "called(272, 0x10000000)",  # unshare
    "called(438, 3, 0, 0)",  # pidfd_getfd
)
RUBY = """
require 'socket'; require 'fiddle'
$VERBOSE = nil
def read(path) = File.directory?(path) ? Dir.children(path) : File.read(path, 1)
def called(number, *arguments)
  own = $$
  result = syscall(number, *arguments)
  exit! if $$ != own || ([57, 58].include?(number) && result == 0)
  true
end
acts = [ACTS]
acts.each_with_index do |act, number|
  done = begin
    act.call
  rescue SystemExit
    raise
  rescue Exception
    nil
  end
  puts "#{number} #{done ? 'done' : 'refused'}"
end
"""

PHP_ACTS = (
    "mkdir('../escaped')",
    "file_put_contents('x', 'x') && rename('x', '/tmp/escaped')",
    "symlink('/etc/passwd', 'link')",
    "link('/usr/bin/env', 'link')",
    "chmod('..', 0777)",
    "chown('.', 0)",
    "touch('..', 0)",
    "unlink(__FILE__)",
    "fopen(__FILE__, 'a')",
    "tempnam('/tmp', 'x')",
    "include '/etc/passwd'",
    "highlight_file('/etc/passwd', true)",
    "glob('/root/*')",
    "exec('id')",
    "shell_exec('id')",
    "system('id')",
    "passthru('/bin/true') === null",
    "popen('id', 'r')",
    "proc_open('/bin/true', [], $pipes)",
    "proc_open(['/bin/true'], [], $pipes)",
    "mail('a@example.com', 'a', 'a')",
    "proc_nice(-5)",
    "pcntl_fork() >= 0",
    "pcntl_exec('/bin/true') !== false",
    "pcntl_unshare(CLONE_NEWUSER)",
    "posix_kill(posix_getppid(), 0)",
    "posix_kill(posix_getppid(), 9)",
    "posix_kill(1, 0)",
    "posix_kill(-1, 15)",
    "posix_kill(getmypid(), 9)",
    "posix_kill(getmypid(), 19)",
    "posix_setuid(0)",
    "posix_mkfifo('pipe', 0600)",
    "posix_mknod('device', 020600, 1, 1)",
    "stream_socket_client('tcp://127.0.0.1:80')",
    "stream_socket_client('udp://127.0.0.1:53')",
    "stream_socket_client('unix:///run/docker.sock')",
    "stream_socket_server('tcp://127.0.0.1:0')",
    "stream_socket_server('unix://socket')",
    "fsockopen('127.0.0.1', 80)",
    "file_get_contents('http://127.0.0.1/')",
    "gethostbyname('example.com') !== 'example.com'",
    "dns_get_record('example.com')",
    "dl('../../../tmp/evil.so')",
    "called(57)",  # fork
    "called(59, 0, 0, 0)",  # execve
    "called(41, 2, 1, 0)",  # socket
    "called(101, 16, 1, 0)",  # ptrace
    "called(319, 0, 0, 0)",  # memfd_create
    "called(29, 0, 4096, 0x380)",  # shmget
    "called(425, 1, 0, 0)",  # io_uring_setup
    "called(321, 0, 0, 0)",  # bpf
    "called(272, 0x10000000, 0, 0)",  # unshare
)
PHP = """<?php
error_reporting(0);
foreach (['posix', 'pcntl', 'ffi', 'sockets'] as $library) dl("$library.so");
function read($path) { return scandir($path) ?: fopen($path, 'r'); }
function called($number, $a = 0, $b = 0, $c = 0) {
    $result = FFI::cdef('long syscall(long, long, long, long);', 'libc.so.6')->syscall($number, $a, $b, $c);
    if ($number == 57 && $result == 0) exit(0);
    return $result >= 0;
}
foreach ([ACTS] as $number => $act) {
    try { $done = $act(); } catch (Throwable $refused) { $done = false; }
    echo $number, $done ? ' done' : ' refused', PHP_EOL;
}
"""

LUA_ACTS = (
    "os.rename('x', '/tmp/escaped')",
    "os.rename(arg[0], 'mine')",
    "os.remove(arg[0])",
    "os.remove('/tmp')",
    "io.open(arg[0], 'a')",
    "os.tmpname()",
    "os.execute('true')",
    "os.execute('kill -9 $PPID')",
    "io.popen('id'):read('a') ~= ''",
    "io.popen('cat > /tmp/escaped', 'w'):close()",
    "package.loadlib('/tmp/evil.so', '*')",
    "package.loadlib('/etc/passwd', '*')",
    "require('socket')",
    "require('posix')",
    "dofile('/etc/passwd')",
    "loadfile('/etc/passwd')",
    "io.lines('/etc/passwd')()",
    "io.input('/etc/passwd')",
    "io.output('/tmp/escaped')",
    "os.getenv('EVALRUN_SANDBOX_TOKENS')",
    "io.open('/proc/self/exe', 'a')",
    "io.open('/usr/bin/lua5.4', 'a')",
    "io.open('/dev/mem')",
    "io.open('/proc/kcore')",
    "io.open('/proc/self/fd/3')",
    "io.open('/proc/self/mem', 'r+')",
)
LUA = """
local file = io.open('x', 'w') file:close()
local acts = {ACTS}
for number, act in ipairs(acts) do
  local ran, done = pcall(act)
  print(number - 1, ran and done and 'done' or 'refused')
end
"""


@dataclass(frozen=True)
class _Suite:
    """How a language's acts become a program. `%s` stands for a quoted path, and in `wrap` for an act."""

    program: str
    acts: tuple[str, ...]
    wrap: str
    read: str = "read(%s)"
    write: str = "write(%s)"
    quote: str = "'"
    parent: str = "PARENT"
    """What tells the parent's id amid a quoted path; by default the program itself does."""
    knows_parent: bool = True


SUITES = {
    "javascript": _Suite(
        JAVASCRIPT, JAVASCRIPT_ACTS, "() => %s", write="fs.openSync(%s, 'w')", parent="' + process.ppid + '"
    ),
    "go": _Suite(GO, GO_ACTS, "func() error { return %s }", quote='"'),
    "java": _Suite(JAVA, JAVA_ACTS, "() -> %s", quote='"'),
    "rust": _Suite(RUST, RUST_ACTS, "Box::new(move || %s)", quote='"'),
    "ruby": _Suite(RUBY, RUBY_ACTS, "-> { %s }", write="File.open(%s, 'w')", parent="' + Process.ppid.to_s + '"),
    "php": _Suite(PHP, PHP_ACTS, "fn() => %s", write="fopen(%s, 'w')", parent="' . posix_getppid() . '"),
    "lua": _Suite(
        LUA, LUA_ACTS, "function() return %s end", read="io.open(%s)", write="io.open(%s, 'w')", knows_parent=False
    ),
}


def make_cheats(language: str) -> tuple[str, list[str]]:
    """Return a program that tries everything, and a name of each of its acts."""
    suite = SUITES[language]
    acts = [
        form % f"{suite.quote}{path}{suite.quote}"
        for form, paths in ((suite.read, PATHS_TO_READ), (suite.write, PATHS_TO_WRITE))
        for path in paths
        if suite.knows_parent or "PARENT" not in path
    ]
    acts += suite.acts
    return _fill(suite, acts), acts


def _fill(suite: _Suite, acts: list[str]) -> str:
    tried = ", ".join(suite.wrap % act for act in acts)
    return suite.program.replace("ACTS", tried).replace("PARENT", suite.parent)


@dataclass(frozen=True)
class Cheat:
    """A program that is accepted if what it tries works."""

    name: str
    problem: str
    """`sum` of `contest_programs`, or `act`, whose test expects what a program prints after its only act is done."""
    text: str


ACT_TEST = ("", "0 done\n")
"""Input and output of the problem `act`."""
DIRECTORY = Path(__file__).parents[2] / "cheats"
"""A file for each language, of `=== NAME` and a program. They want to pass `sum` without the sum."""


def load_cheats(language: str) -> list[Cheat]:
    """Return the cheats of a language: those of its file, what is tried while it compiles, and each act by itself."""
    parts = (DIRECTORY / f"{language}.txt").read_text().removeprefix("=== ").split("\n=== ")
    own = [Cheat(name, "sum", text) for name, _, text in (part.partition("\n") for part in parts)]
    compiled = [Cheat(name, "sum", text) for name, (of, text) in COMPILE_TIME.items() if of == language]
    same = "javascript" if language == "typescript" else language
    _, acts = make_cheats(same)
    return [*own, *compiled, *(Cheat(act, "act", _fill(SUITES[same], [act])) for act in acts)]


COMPILE_TIME = {
    "a file included as text": ("rust", 'fn main() { print!("{}", include_str!("/etc/passwd")); }'),
    "a file included as bytes": ("rust", 'fn main() { print!("{:?}", include_bytes!("/etc/passwd")); }'),
    "a file included as code": ("rust", 'fn main() { include!("/etc/passwd"); }'),
    "a file as a module": ("rust", '#[path = "/etc/passwd"] mod secrets; fn main() {}'),
    "the compiler's environment": ("rust", 'fn main() { print!("{}", env!("EVALRUN_SANDBOX_TOKENS")); }'),
    "a macro without an end": ("rust", "macro_rules! more { ($($all:tt)*) => { more!($($all)* $($all)*) } } fn main() { more!(x) }"),
    "a constant without an end": ("rust", "const fn f(n: u64) -> u64 { let mut i = n; while i > 0 { i += 1; if i == 0 { i = 1; } } i } const X: u64 = f(1); fn main() { println!(\"{}\", X); }"),
    "an array of a terabyte": ("rust", "static A: [u8; 1 << 45] = [1; 1 << 45]; fn main() { println!(\"{}\", A[5]); }"),
    "an annotation processor": ("java", 'import javax.annotation.processing.*;\n@SupportedAnnotationTypes("*") public class Main extends AbstractProcessor { static { System.exit(0); } public boolean process(java.util.Set s, RoundEnvironment r) { return nothing; } }\n'),
    "a method of 64 KiB": ("java", "public class Main { static int x; public static void main(String[] a) { " + "x += 123456789 * x;" * 9000 + " } }"),
    "a long constant in a wrong program": ("java", "public class Main { static final String A = " + '"x" + ' * 40000 + '"y"; public static void main(String[] a) { System.out.println(A.length(); } }'),
    "an embedded file": ("go", 'package main\nimport _ "embed"\n//go:embed /etc/passwd\nvar secrets string\nfunc main() { print(secrets) }\n'),
    "an embedded file above": ("go", 'package main\nimport _ "embed"\n//go:embed ../../../../etc/passwd\nvar secrets string\nfunc main() { print(secrets) }\n'),
    "C that includes a file": ("go", 'package main\n// #include "/etc/passwd"\nimport "C"\nfunc main() {}\n'),
    "C with flags of its own": ("go", 'package main\n// #cgo CFLAGS: -fplugin=/tmp/evil.so\nimport "C"\nfunc main() {}\n'),
    "a package from the network": ("go", 'package main\nimport _ "example.com/evil"\nfunc main() {}\n'),
    "an array that fits nowhere": ("go", "package main\nvar a [1 << 50]byte\nfunc main() { a[5] = 1; print(a[5]) }\n"),
}  # fmt: skip
"""By name: programs that would read or exhaust something while they are compiled. None compiles."""

KEEPS_A_FILE = {
    "java": 'import java.io.File;\npublic class Main { public static void main(String[] a) throws Exception { System.out.println(new File(".").list().length); new File("left").createNewFile(); } }\n',
    "javascript": "const fs = require('fs'); console.log(fs.readdirSync('.').length); fs.writeFileSync('left', 'x');",
    "lua": "local old = io.open('left') print(old and 1 or 0) io.open('left', 'w'):write('x')",
    "php": "<?php echo count(scandir('.')) - 2, PHP_EOL; file_put_contents('left', 'x');",
    "ruby": "puts Dir.children('.').size; File.write('left', 'x')",
    "go": 'package main\nimport ("fmt"; "os")\nfunc main() { found, _ := os.ReadDir("."); fmt.Println(len(found)); os.WriteFile("left", nil, 0o600) }\n',
    "rust": 'fn main() { println!("{}", std::fs::read_dir(".").unwrap().count()); std::fs::write("left", "x").unwrap(); }',
}
"""Prints how many files its directory holds, and leaves one behind."""

WORKS_ON = {
    "java": 'public class Main { public static void main(String[] a) { for (int i = 0; i < 9; i++) { Thread t = new Thread(() -> { for (;;) Thread.yield(); }); t.setDaemon(true); t.start(); } System.out.println("answer"); } }\n',
    "javascript": "console.log('answer'); const {Worker} = require('worker_threads'); new Worker('for(;;);', {eval: true}); setTimeout(() => process.exit(0), 100);",
    "ruby": "9.times { Thread.new { loop {} } }; puts 'answer'",
    "go": 'package main\nimport "fmt"\nfunc main() { for i := 0; i < 9; i++ { go func() { for {} }() }; fmt.Println("answer") }\n',
    "rust": 'fn main() { for _ in 0..9 { std::thread::spawn(|| loop { std::thread::yield_now() }); } println!("answer"); }',
}
"""Ends while its threads work on."""

FLOODS = {
    "java": 'public class Main { public static void main(String[] a) { for (;;) System.out.println("x".repeat(65536)); } }\n',
    "javascript": "for (;;) require('fs').writeSync(1, 'x'.repeat(65536))",
    "lua": "while true do io.write(('x'):rep(65536)) end",
    "php": "<?php for (;;) echo str_repeat('x', 65536);",
    "ruby": "loop { puts 'x' * 65536 }",
    "go": 'package main\nimport ("os"; "strings")\nfunc main() { for { os.Stdout.WriteString(strings.Repeat("x", 65536)) } }\n',
    "rust": 'fn main() { loop { println!("{}", "x".repeat(65536)); } }',
}
"""Prints without an end."""

MANY_THREADS = {
    "java": 'public class Main { public static void main(String[] a) throws Exception { for (int i = 0; i < 400; i++) { Thread t = new Thread(() -> { try { Thread.sleep(9000); } catch (Exception e) { } }); t.setDaemon(true); t.start(); } Thread.sleep(3000); System.out.println("done"); } }\n',
    "javascript": "const {Worker} = require('worker_threads'); for (let i = 0; i < 400; i++) new Worker('setTimeout(() => 0, 1e6)', {eval: true}); setTimeout(() => console.log('done'), 3000);",
    "ruby": "400.times { Thread.new { sleep } }; sleep 3; puts 'done'",
    "go": 'package main\nimport ("runtime"; "time")\nfunc main() { for i := 0; i < 400; i++ { go func() { runtime.LockOSThread(); time.Sleep(time.Hour) }() }; time.Sleep(3 * time.Second); println("done") }\n',
    "rust": 'fn main() { for _ in 0..400 { std::thread::Builder::new().stack_size(16384).spawn(|| std::thread::sleep(std::time::Duration::from_secs(9))).unwrap(); } std::thread::sleep(std::time::Duration::from_secs(3)); println!("done"); }',
}
"""Starts more threads than a program may have. PHP and Lua have none."""
