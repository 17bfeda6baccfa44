#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package on small committed results, and on files that are wrong.

Usage: alibi_test.py RESULTS_FOLDER ALIBI IMAGE (Debian's own Python, which Debian's pandas belongs to)
"""

import csv
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
PACKAGE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, PACKAGE)
if importlib.util.find_spec('pandas') is None:
    print('skipped: no pandas here (./alibi setup installs it)')
    sys.exit(0)

import pandas

import alibi

FOLDER, PROGRAM, IMAGE = (os.path.abspath(path) for path in sys.argv[1:4])


def has_parquet():
    try:
        pandas.io.parquet.get_engine('auto')
        return True
    except ImportError:
        return False


class Results(unittest.TestCase):
    def test_rows_are_those_of_the_file(self):
        frame = alibi.results(FOLDER)
        with open(os.path.join(FOLDER, 'results.csv'), encoding='utf-8') as file:
            self.assertEqual(len(frame), len(file.readlines()) - 1)
        native = frame[frame['system'] == 'native']
        self.assertTrue(native['coherence'].isna().all() and native['policy'].isna().all())

    def test_medians_leave_observed_runs_out(self):
        frame = pandas.DataFrame({
            'run': list('abcd'), 'workload': 'w', 'system': 'alibi', 'policy': 'never',
            'repeat': [1, 2, 3, 0], 'metric': 'm', 'value': [3.0, 5.0, 4.0, 100.0], 'unit': 's'})
        figure, = alibi.figures(frame).to_dict('records')
        self.assertEqual((figure['value'], figure['least'], figure['most'], figure['repeats']),
                         (4, 3, 5, 3))

    def test_peers_without_settings_are_in_ratios(self):
        ratios = alibi.ratios(alibi.results(FOLDER), to='native')
        syscall = ratios[(ratios['metric'] == 'syscall') & (ratios['system'] == 'alibi')]
        self.assertEqual(len(syscall), 6)  # 2 policies x 3 strategies
        self.assertTrue((syscall['peer'] == 287.245).all())
        self.assertTrue((syscall['ratio'] == syscall['value'] / 287.245).all())

    def test_a_ratio_is_of_one_host(self):
        rows = []
        for host, native, ours in (('fast', 1.0, 2.0), ('slow', 10.0, 30.0)):
            rows += [(f'{host}1', 'w', 'native', None, host, 1, 'm', native, 's'),
                     (f'{host}2', 'w', 'alibi', 'never', host, 1, 'm', ours, 's')]
        # Of a host without its own native run there is no ratio.
        rows.append(('lone', 'w', 'alibi', 'never', 'lonely', 2, 'm', 7.0, 's'))
        frame = pandas.DataFrame(rows, columns=['run', 'workload', 'system', 'policy', 'host',
                                                'repeat', 'metric', 'value', 'unit'])
        ratios = alibi.ratios(frame).set_index('host')['ratio'].to_dict()
        self.assertEqual(ratios, {'fast': 2.0, 'slow': 3.0})


class Logs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(dir=os.environ.get('TEST_TMPDIR'))
        cls.log = os.path.join(cls.folder, 'a log.log')
        os.environ['ALIBI'] = PROGRAM
        subprocess.run([PROGRAM, 'run', '--ram', '16M', '--log', cls.log, IMAGE], check=False,
                       stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_every_record_and_its_types(self):
        frame = alibi.event_log(self.log)
        lines = subprocess.run([PROGRAM, 'log', '--csv', self.log], check=True, text=True,
                               capture_output=True).stdout.splitlines()
        self.assertEqual(len(frame), len(lines) - 1)
        self.assertEqual(str(frame['trapped'].dtype), 'boolean')
        row = next(row for row in csv.DictReader(lines) if row['record'] == 'translation')
        translation = frame[frame['record'] == 'translation'].iloc[0]
        self.assertEqual([int(row['ns']), int(row['pc'], 16)], [translation['ns'], translation['pc']])
        self.assertTrue(frame[frame['record'] == 'end']['pc'].isna().all())

    def test_pieces_make_the_same_frame(self):
        whole = alibi.event_log(self.log)
        events = sys.modules['alibi._events']
        usual, events.CHUNK = events.CHUNK, 20_000
        try:
            pandas.testing.assert_frame_equal(alibi.event_log(self.log), whole)
        finally:
            events.CHUNK = usual

    def test_choosing(self):
        sites = alibi.event_log(self.log, kinds=['site'], sites=[0])
        self.assertEqual(sites['site'].tolist(), [0])
        self.assertNotIn('vector', sites)
        # None of that kind: no rows, and the columns are there.
        none = alibi.event_log(self.log, kinds=['lost'])
        self.assertEqual((len(none), 'ns' in none), (0, True))

    def test_addresses_of_the_upper_half(self):
        numbers = sys.modules['alibi._events']._numbers(
            pandas.Series(['0xffffffff81000000', None, '0xffffffffffffffff', '12'], dtype=object))
        self.assertEqual(numbers[0], 0xffffffff81000000)
        self.assertEqual(numbers[2], 2**64 - 1)
        self.assertTrue(numbers.isna()[1])
        self.assertEqual(numbers[3], 12)

    def test_header_and_counters(self):
        self.assertEqual(alibi.log_header(self.log)['policy'], 'hysteresis')
        self.assertGreater(alibi.log_counters(self.log)['runtime.translations'], 0)

    def test_what_is_damaged_is_said(self):
        cut = os.path.join(self.folder, 'cut.log')
        with open(self.log, 'rb') as file, open(cut, 'wb') as out:
            out.write(file.read()[:-100])
        for read in (alibi.event_log, alibi.log_counters):
            with self.assertRaisesRegex(alibi.Unreadable, 'cut.log'):
                read(cut)
        with self.assertRaisesRegex(alibi.Unreadable, "no kind 'nope'"):
            alibi.event_log(self.log, kinds=['nope'])
        for read in (alibi.event_log, alibi.log_header):
            with self.assertRaisesRegex(alibi.Unreadable, 'No such file'):
                read(os.path.join(self.folder, 'absent'))
        with open(cut, 'wb') as out:
            out.write(b'AlibiLog' + b'\xff' * 16 + b'{')
        for read in (alibi.event_log, alibi.log_header):
            with self.assertRaises(alibi.Unreadable):
                read(cut)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get('TEST_TMPDIR'))
        self.addCleanup(shutil.rmtree, self.folder)

    def export(self, *words):
        return subprocess.run(['/usr/bin/python3', '-m', 'alibi', *words], text=True, check=False,
                              capture_output=True, cwd=self.folder,
                              env=dict(os.environ, PYTHONPATH=PACKAGE, PYTHONDONTWRITEBYTECODE='1'))

    def test_csv_is_what_the_laboratory_wrote(self):
        done = self.export(FOLDER, '--out', 'tables')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertEqual(done.stdout.split()[0], 'tables/small-results.csv')
        again = os.path.join(self.folder, 'results.csv')
        shutil.move(os.path.join(self.folder, 'tables/small-results.csv'), again)
        pandas.testing.assert_frame_equal(alibi.results(self.folder), alibi.results(FOLDER))

    def test_parquet_keeps_types(self):
        path = os.path.join(self.folder, 'x.parquet')
        frame = alibi.results(FOLDER)
        if not has_parquet():
            with self.assertRaisesRegex(alibi.Unreadable, 'pyarrow or fastparquet'):
                alibi.write(frame, path)
            done = self.export(FOLDER, '--format', 'parquet')
            self.assertEqual(done.returncode, 66)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertFalse(os.listdir(self.folder))
            print('without pyarrow and fastparquet: no Parquet was written')
            return
        alibi.write(frame, path)
        pandas.testing.assert_frame_equal(pandas.read_parquet(path), frame)

    def test_what_is_wrong_is_one_line(self):
        for words, status in ((('nowhere',), 66), (('--format', 'xls', FOLDER), 64), ((), 64),
                              (('/etc/passwd',), 66), ((FOLDER, '--out', '/dev/null/x'), 66)):
            done = self.export(*words)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (status, 1), words)
        with self.assertRaisesRegex(alibi.Unreadable, 'must end with'):
            alibi.write(alibi.results(FOLDER), 'x.xls')
        os.mkdir(os.path.join(self.folder, 'bad'))
        for text in ('run,workload\n', '', 'run,workload,system,policy,repeat,metric,value,unit\n'
                     'a,b,c,d,one,m,2,s\n'):
            with open(os.path.join(self.folder, 'bad/results.csv'), 'w', encoding='utf-8') as file:
                file.write(text)
            with self.assertRaisesRegex(alibi.Unreadable, 'bad/results.csv'):
                alibi.results(os.path.join(self.folder, 'bad'))


unittest.main(argv=sys.argv[:1], verbosity=2)
