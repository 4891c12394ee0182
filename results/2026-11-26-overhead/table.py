"""Medians over the turns of the records in a directory: table.py DIRECTORY"""
import glob, json, statistics, sys
names = ['crumb', 'crumb-noawake', 'crumb-exclusive', 'bindfs', 'mergerfs']
works = ['create', 'stat_cold', 'stat_warm', 'open_read_close', 'list', 'small_write', 'small_read', 'rename', 'unlink']
runs = {n: [json.load(open(p)) for p in sorted(glob.glob(f'{sys.argv[1]}/{n}-[0-9]*.json'))] for n in names}
runs = {n: [r[0] if isinstance(r, list) else r for r in rs] for n, rs in runs.items()}
print('VALID of runs:', {n: f"{sum(r['verdict']['valid'] for r in rs)} of {len(rs)}" for n, rs in runs.items()})
median = lambda n, m: statistics.median([r['metrics'][m] for r in runs[n] if m in r['metrics']] or [float('nan')])
print('| microseconds | below |' + ''.join(f' {n} |' for n in names) + ' crumb against the better rival | noawake | requests of crumb |')
for w in works:
    below = median('bindfs', f'{w}_lower_us')
    at = {n: median(n, f'{w}_mount_us') for n in names}
    rival = min(at['bindfs'], at['mergerfs'])
    print(f"| {w} | {below:.2f} |" + ''.join(f" {at[n]:.2f} |" for n in names)
          + f" {rival / at['crumb']:.2f} | {rival / at['crumb-noawake']:.2f} | {median('crumb', w + '_requests'):.2f} |")
