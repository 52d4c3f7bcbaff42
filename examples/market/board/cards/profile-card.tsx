import { useFresh } from 'pgfresh/react';
import { Card } from '../card.tsx';
import { Facts } from '../facts.tsx';
import { day, whole } from '../format.ts';

export function ProfileCard({ symbol }: { readonly symbol: string }) {
  const profile = useFresh('profile', symbol);
  const { data } = profile;
  return (
    <Card title="Profile" type="profile" symbol={symbol} fresh={profile} lines={5}>
      {data && (
        <>
          <p className="about">{data.description}</p>
          <Facts
            facts={[
              ['Sector', data.sector],
              ['Industry', data.industry],
              ['Chief', data.ceo ?? 'nobody now'],
              ['Employees', whole(data.employees)],
              ['Listed since', day(data.ipo_date)],
              ['Website', <span className="words">{data.website?.replace('https://', '') ?? 'none'}</span>],
            ]}
          />
        </>
      )}
    </Card>
  );
}
